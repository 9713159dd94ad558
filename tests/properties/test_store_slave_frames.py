"""However a master's log is cut into frames, and whatever ends come in between, the slave's store is the same.

And whatever is done to the bytes, a slave takes what recovery would take, and dispatches what recovery would.
"""

from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from remoting.record import RecordError
from runtime.clock import ManualClock
from store.errors import ReplicaRefused
from store.log.dispatch import DELAY_LEVELS_MS, dispatched_from_record
from store.log.logscan import check_record
from store.messagestore import MessageStore
from store.slave.recordreader import RecordReader
from tests.parts.slave_tools import Slave, contents, messages
from tests.parts.store_tools import HOST, make_config, record

FILE_BYTES = 8192
ROUNDS = 12


@cache
def master() -> tuple[bytes, dict[str, bytes]]:
    """A master's log of some files, and all that its store holds."""
    with TemporaryDirectory() as folder:
        config = make_config(Path(folder), mappedFileSizeCommitLog=FILE_BYTES)
        store = MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)
        for number in range(ROUNDS):
            store.put_many(messages(number * 10, 10, 200))
            # A large one now and then: it comes in many frames, and blanks are long.
            store.put(record(bytes(number * 300)))
        end = store.write()
        store.close()
        files = sorted((Path(folder) / "store" / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files)[:end], contents(Path(folder))


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([1, 7, 8, 9, 90, 91, 92, 300, 1000, 5000, FILE_BYTES]) | st.integers(1, 2000),
        st.sampled_from(["", "", "", "dispatch", "dispatch", "damage", "close", "kill"]),
        st.integers(0, 1 << 16),
    ),
    min_size=1,
    max_size=30,
)


def step(slave: Slave, action: str, dice: int, data: bytes) -> Slave:
    """Do something between two frames; `data` is what comes next, up to the end of the file."""
    if action == "dispatch":
        slave.log.dispatch(dice)
    elif action == "damage":
        damaged = bytearray(data)
        for at in range(dice % len(data), min(dice % len(data) + 400, len(data))):
            damaged[at] ^= 0xA5
        try:
            slave.log.append(slave.log.written, bytes(damaged))
        except ReplicaRefused:
            return slave
        # Behind a blank anything may stand.
        slave.kill()
        raise _Taken
    elif action:
        slave.store.close() if action == "close" else slave.kill()
        slave = Slave(slave.folder, mappedFileSizeCommitLog=FILE_BYTES)
        assert slave.log.written == slave.log.dispatched
    return slave


class _Taken(Exception):
    pass


@given(FRAMES)
def test_any_frames_give_the_same_store(frames: list[tuple[int, str, int]]) -> None:
    log, expected = master()
    with TemporaryDirectory() as folder:
        slave = Slave(Path(folder), mappedFileSizeCommitLog=FILE_BYTES)
        for number, (size, action, dice) in enumerate(cycle(frames)):
            at = slave.log.written
            if at >= len(log):
                break
            file_end = at - at % FILE_BYTES + FILE_BYTES
            # Later rounds without accidents: a restart after each small frame would come to no end.
            quiet = number >= len(frames)
            before = (at, slave.log.dispatched)
            try:
                slave = step(slave, "" if quiet else action, dice, log[at:file_end])
            except _Taken:
                return
            if action == "damage" and not quiet:
                assert slave.log.written <= before[0]
                assert slave.log.dispatched == before[1]
            at = slave.log.written
            slave.log.append(at, memoryview(log)[at : min(at + size, at - at % FILE_BYTES + FILE_BYTES)])
            assert slave.log.dispatched <= slave.log.written
        assert slave.log.written == len(log)
        while slave.log.dispatch():
            pass
        assert slave.log.dispatched == len(log)
        slave.store.close()
        assert contents(Path(folder)) == expected


@given(st.integers(0, FILE_BYTES), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_the_reader_and_recovery_agree(until: int, changes: list[tuple[int, int]]) -> None:
    log = bytearray(master()[0][:until])
    for at, value in changes:
        if at < len(log):
            log[at] = value
    data = bytes(log)
    view = memoryview(data)
    expected, at, verdict = [], 0, ""
    while at < len(data) and not verdict:
        found = check_record(view, at, at, check_crc=True)
        if isinstance(found, str):
            verdict = found
            break
        try:
            expected.append(dispatched_from_record(data, at, DELAY_LEVELS_MS))
        except RecordError as error:
            verdict = str(error)
        else:
            at += found[0]
    taken, refusal = None, ""
    try:
        taken = RecordReader(DELAY_LEVELS_MS).read(data, 0, FILE_BYTES)
    except RecordError as error:
        refusal = str(error)
    if taken is None:
        # That a topic cannot be a folder is found out when its queue is made, else.
        assert verdict or "cannot be a topic" in refusal
        return
    assert taken.batch == expected
    assert taken.size in {at, FILE_BYTES}
    assert verdict in {"", "cut short"} or taken.blank
