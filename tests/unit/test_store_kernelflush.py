"""Group commit by the kernel's syncs: as the thread's, told in the loop; what it does not take is the thread's."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from store.files.disk import Disk
from store.files.kernelsync import REQUESTS_MAX, KernelSyncs
from store.log.syncround import Witnessed
from store.messagestore import MessageStore
from tests.parts.kernel_rig import CONFIG, Counted, FakeKernel, Floor, Rig, faked
from tests.parts.store_tools import HOST, make_config


async def test_what_is_asked_for_is_synced_by_the_kernel_and_told_in_the_loop(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSyncs())
    assert rig.fd is not None
    assert rig.flusher.synced_by == "kernel"
    loop = asyncio.get_running_loop()
    collected = asyncio.Event()

    def collect() -> None:
        rig.flusher.collect()
        collected.set()

    loop.add_reader(rig.fd, collect)
    for total in range(100, 100 * 50, 100):
        rig.ask(100)
        while rig.log.flushed < rig.log.written:
            collected.clear()
            await asyncio.wait_for(collected.wait(), 10)
        assert rig.log.flushed >= total
    assert rig.told[-1] == rig.log.written
    assert len(rig.told) == 49, "one round each, those over a file's end too"
    assert not rig.told_by_thread
    assert isinstance(rig.disk, Counted)
    assert "store-flusher" not in rig.disk.threads
    loop.remove_reader(rig.fd)
    rig.close()


async def test_a_signal_behind_what_was_collected_does_not_keep_the_loop_busy(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSyncs())
    assert rig.fd is not None
    rig.ask(100)
    assert isinstance(rig.flusher._kernel, KernelSyncs)
    while rig.log.flushed < 100:
        rig.flusher.collect()
    # As after a second request of that round whose end was seen before it was signalled.
    os.eventfd_write(rig.fd, 1)
    called = 0

    def collect() -> None:
        nonlocal called
        called += 1
        rig.flusher.collect()

    loop = asyncio.get_running_loop()
    loop.add_reader(rig.fd, collect)
    for _ in range(20):
        await asyncio.sleep(0)
    loop.remove_reader(rig.fd)
    assert 1 <= called <= 2
    rig.close()


def test_requests_that_gather_are_served_together(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        for _ in range(5):
            rig.ask(100)
        assert kernel.asked == [1], "the others wait for the round that is under way"
        rig.flusher.collect()
        assert rig.log.flushed == 0, "nothing is over yet"
        kernel.done()
        rig.flusher.collect()
        assert rig.told == [100]
        assert kernel.asked == [1, 1], "the next round began by itself"
        kernel.done()
        rig.flusher.collect()
        assert rig.told == [100, 500]
        assert not kernel.under_way


def test_what_is_written_when_a_round_is_told_of_comes_into_the_next(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):

        def told(position: int) -> None:
            rig.told.append(position)
            rig.write(10)

        rig.flusher._told_here = told
        rig.ask(100)
        rig.ask(100)
        for _ in range(2):
            kernel.done()
            rig.flusher.collect()
        assert rig.told == [100, 210]


def test_who_is_told_may_ask_for_more(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.flusher._told_here = lambda position: rig.ask(10) if position < 30 else rig.told.append(position)
        rig.ask(10)
        for _ in range(3):
            kernel.done()
            rig.flusher.collect()
        assert rig.told == [30]


def test_a_round_over_a_file_s_end_asks_for_both_files(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.ask(3000)
        kernel.done()
        rig.flusher.collect()
        rig.ask(3000)
        assert kernel.asked == [1, 2]
        kernel.results, kernel.under_way = [None], 2
        rig.flusher.collect()
        assert rig.log.flushed == 3000, "half of it is no round"
        kernel.done()
        rig.flusher.collect()
        assert rig.log.flushed == rig.log.written


def test_an_error_of_one_sync_is_the_end_and_is_said_once(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.ask(3000)
        kernel.done()
        rig.flusher.collect()
        rig.ask(3000)
        kernel.done(OSError(errno.EIO, "broken"))
        rig.flusher.collect()
        assert [str(error) for error in rig.fatal] == ["[Errno 5] broken"]
        rig.ask(10)
        assert kernel.asked == [1, 2], "nothing is asked for any more"
        assert rig.flusher.failure is rig.fatal[0]
    assert rig.log.flushed == 3000
    assert rig.told == [3000]
    assert isinstance(rig.disk, Counted)
    assert "store-flusher" not in rig.disk.threads


def test_what_the_kernel_did_and_does_not_say_is_the_end(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.ask(10)
        kernel.collect_fails = OSError(errno.EFAULT, "lost")
        rig.flusher.collect()
        assert rig.fatal == [kernel.collect_fails]
        kernel.under_way, kernel.collect_fails = 0, None
    assert rig.log.flushed == 0


@pytest.mark.parametrize("refuses", [None, OSError(errno.EINVAL, "no such request")])
def test_what_the_kernel_does_not_take_the_thread_does(tmp_path: Path, refuses: OSError | None) -> None:
    with faked(tmp_path) as (rig, kernel):
        kernel.takes, kernel.refuses = 0, refuses
        rig.ask(10)
        rig.wait()
        assert (rig.told_by_thread, rig.told) == ([10], [])
        assert rig.flusher.synced_by == ("kernel" if refuses is None else "thread")
        kernel.takes, kernel.refuses = 100, None
        rig.ask(10)
        kernel.done()
        rig.flusher.collect()
        assert (rig.told_by_thread, rig.told) == ([10], [20]), "it is asked each time"


@pytest.mark.parametrize("files", [REQUESTS_MAX - 1, REQUESTS_MAX, 3 * REQUESTS_MAX])
def test_what_spans_more_files_than_the_kernel_is_asked_for_the_thread_syncs(tmp_path: Path, files: int) -> None:
    """A member that catches up with small files: one write may begin many."""
    floor = Floor(tmp_path)
    rig = Rig(tmp_path / "log", KernelSyncs(), beside=floor)
    for _ in range(files - 1):
        rig.write(4000)
    rig.ask(4000)
    if files < REQUESTS_MAX:
        while rig.log.flushed < rig.log.written:
            rig.flusher.collect()
        assert (rig.told, rig.told_by_thread) == ([rig.log.written], [])
    else:
        rig.wait()
        assert (rig.told, rig.told_by_thread) == ([], [rig.log.written])
    assert not rig.fatal
    assert rig.log.flushed == rig.log.written
    # And the next one is the kernel's again.
    rig.ask(10)
    while rig.log.flushed < rig.log.written:
        rig.flusher.collect()
    assert rig.told[-1] == rig.log.written
    rig.close()


def test_a_round_that_was_taken_in_part_is_done_again_by_the_thread(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.ask(3000)
        kernel.done()
        rig.flusher.collect()
        kernel.takes = 1
        rig.ask(3000)
        kernel.done()
        rig.flusher.collect()
        rig.wait()
        assert rig.told == [3000]
        assert rig.told_by_thread == [rig.log.written]


def test_while_somebody_cuts_nothing_is_synced_and_then_the_thread_does(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        with rig.flusher.syncing:
            rig.ask(10)
            assert not kernel.asked
        rig.wait()
        assert rig.told_by_thread == [10]


def test_who_cuts_waits_for_the_round_and_what_was_cut_is_not_called_flushed(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, kernel):
        rig.ask(100)
        assert rig.flusher.syncing.locked()
        blot_out = rig.flusher.cut(40)
        kernel.done()
        rig.flusher.collect()
        assert rig.log.flushed == 40
        assert rig.told == [40]
        with rig.flusher.syncing:
            blot_out()
        rig.ask(20)
        kernel.done()
        rig.flusher.collect()
        assert rig.told == [40, 60]


def test_the_loop_may_wait_for_a_sync_and_nobody_is_called_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSyncs())
    rig.ask(10)
    rig.flusher.wait(rig.write(10), 10)
    assert rig.log.flushed == 20
    assert (rig.told, rig.told_by_thread) == ([], [10, 20]), "those who carry it into the loop are"
    rig.close()
    with faked(tmp_path / "held") as (rig, _kernel):
        rig.ask(10)
        rig.flusher.wait(10, 0.01)
        assert rig.log.flushed == 0, "it took too long"


def test_who_is_told_of_a_round_may_wait_for_what_was_asked_for_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSyncs())
    began = time.monotonic()

    def told(position: int) -> None:
        rig.told.append(position)
        rig.flusher.wait(20, 10)

    rig.flusher._told_here = told
    rig.ask(10)
    rig.ask(10)
    while not rig.told:
        rig.flusher.collect()
    assert rig.log.flushed == 20
    assert time.monotonic() - began < 9, "nobody began it"
    rig.close()


def test_closing_waits_for_the_round_and_flushes_the_rest(tmp_path: Path) -> None:
    with faked(tmp_path) as (rig, _kernel):
        rig.ask(10)
        rig.ask(10)
        rig.write(10)
    assert rig.log.flushed == 30
    assert (rig.told, rig.told_by_thread) == ([], [10, 30]), "nobody collects any more"


def test_closing_a_round_that_fails_is_an_error_too(tmp_path: Path) -> None:
    class Failing(FakeKernel):
        def wait(self) -> list[OSError | None]:
            self.done(OSError(errno.EIO, "broken"))
            return self.collect()

    rig = Rig(tmp_path, Failing())
    rig.ask(10)
    rig.close()
    assert isinstance(rig.flusher.failure, OSError)
    assert rig.log.flushed == 0


def test_R4_the_file_beside_is_synced_with_the_log_and_counts_once_that_is_over(tmp_path: Path) -> None:
    floor = Floor(tmp_path)
    with faked(tmp_path, beside=floor) as (rig, kernel):
        rig.ask(10)
        assert kernel.asked == [2]
        assert floor.lacks
        kernel.done()
        rig.flusher.collect()
        assert not floor.lacks
        assert floor.handed == 0, "the loop waits for no disk"
        rig.ask(10)
        assert kernel.asked == [2, 1]
        floor.lacks = True
        kernel.done(OSError(errno.EIO, "broken"))
        rig.flusher.collect()
        assert floor.lacks
    os.close(floor.fd)


def test_R4_what_the_witness_did_not_see_is_witnessed_by_another_round(tmp_path: Path) -> None:
    """As in test_store_flusher.py: written between witness and sync, and nothing more comes."""
    known, raised = 0, list[int]()

    def witness() -> Witnessed:
        seen = known
        return seen, lambda: raised.append(seen)

    with faked(tmp_path, witness=witness) as (rig, kernel):
        rig.ask(10)
        kernel.done()
        known = 10
        rig.flusher.collect()
        assert raised == [0, 10], "at once, without a sync: all of it is durable"
        assert kernel.asked == [1]
        rig.write(10)
        rig.flusher._log.flushed = 20
        known = 20
        rig.flusher.ask(20)
        assert raised == [0, 10, 20], "synced before its writer came to ask"


def test_the_thread_leaves_alone_what_the_kernel_is_at(tmp_path: Path) -> None:
    config = replace(CONFIG, flushIntervalCommitLog=1, flushCommitLogLeastPages=1, flushCommitLogThoroughInterval=1)
    waits: list[float] = []
    disk = Counted()
    with faked(tmp_path, config=config, disk=disk) as (rig, kernel):
        rig.ask(3000)
        rig.ask(3000)
        wait = rig.flusher._wake.wait

        def waited(timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            if len(waits) == 20:
                rig.news.release()
            return wait(timeout)

        rig.flusher._wake.wait = waited  # type: ignore[method-assign]
        rig.wait()
        assert "store-flusher" not in disk.threads, "it woke twenty times, and a round was under way"
        assert not rig.told_by_thread
        kernel.done()
        rig.flusher.collect()
        kernel.done()
        rig.flusher.collect()
        assert rig.told[-1] == rig.log.written
        rig.write(10)
        rig.wait()
        assert rig.told_by_thread == [rig.log.written], "what nobody asked for is the thread's"


def test_a_kernel_without_such_syncs_leaves_them_to_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> KernelSyncs:
        raise OSError(errno.ENOSYS, "Function not implemented")

    caplog.set_level("INFO")
    rig = Rig(tmp_path, None)
    rig.flusher._make_kernel = refuse
    assert rig.flusher.in_loop(rig.told.append) is None
    assert "Function not implemented" in caplog.text
    assert rig.flusher.synced_by == "thread"
    rig.ask(10)
    rig.wait()
    assert rig.told_by_thread == [10]
    rig.close()


@pytest.mark.parametrize(
    ("options", "slave", "disk", "by"),
    [
        ({"kernelSyncEnable": True}, False, Disk, "kernel"),
        ({}, False, Disk, "kernel"),
        ({"kernelSyncEnable": False}, False, Disk, "thread"),
        ({"kernelSyncEnable": True}, True, Disk, "thread"),
        ({"kernelSyncEnable": True}, False, Counted, "thread"),
    ],
)
def test_who_syncs_a_store(
    tmp_path: Path, options: dict[str, bool], slave: bool, disk: Callable[[], Disk], by: str
) -> None:
    """A disk whose fdatasync does more than the real one's is not passed by."""
    store = MessageStore.open(make_config(tmp_path, **options), store_host=HOST, slave=slave, disk=disk())
    assert store.stats().synced_by == "thread"
    fd = store.flusher.in_loop(lambda _position: None)
    assert store.stats().synced_by == by
    assert (fd is not None) == (by == "kernel")
    store.close()
