"""R13: a copy of the leader's log, over real sockets: whole, checked, bounded, and right whatever is cut short."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import cbor2
import pytest
import uvloop

from raft.snapshot import client as reset_client
from raft.snapshot import files as reset_files
from raft.snapshot.client import ResetClient
from raft.snapshot.protocol import (
    CopiedFile,
    Manifest,
    Marker,
    MetadataFile,
    ResetMismatch,
    read_marker,
    remove_marker,
    write_marker,
)
from tests.parts.raft_copies import FILE_BYTES, GROUP, MIB, Leader, Source, Target, nothing
from tests.parts.raft_links import QUICK


@pytest.fixture
def target(tmp_path: Path) -> Target:
    made = Target(tmp_path)
    write_marker(made.marker, Marker("n0", GROUP.group_id.hex(), "behind"))
    return made


@pytest.mark.parametrize("size", [1, FILE_BYTES - 1, FILE_BYTES, FILE_BYTES + 1, 3 * FILE_BYTES + 12345])
async def test_R13_a_copy_is_whole(target: Target, size: int) -> None:
    async with Leader(Source(size)) as leader:
        manifest = await leader.client(target).run()
        assert manifest.end == leader.source.end()
        target.check(leader.source)
        assert max(size for _, size in leader.source.reads) <= MIB
        assert target.wipes == [frozenset()]
    # Users' secret keys are in it.
    assert {path.stat().st_mode & 0o077 for path in (target.folder / "commitlog").iterdir()} == {0}


async def test_R13_the_pin_is_released_when_the_copy_is_done_and_when_the_link_ends(target: Target) -> None:
    source = Source(2 * FILE_BYTES)
    async with Leader(source) as leader:
        await leader.client(target).run()
        await until(lambda: source.pins == 0)
        write_marker(target.marker, Marker())
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(_: int) -> None:
            loop.call_soon_threadsafe(started.set)
            time.sleep(0.01)

        source.before_read = slow
        task = asyncio.create_task(leader.client(target).run())
        await started.wait()
        assert source.pins == 1
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await until(lambda: source.pins == 0)
        assert read_marker(target.marker) is not None, "what was cut short takes no part"


async def until(true: Callable[[], bool]) -> None:
    """Wait for what has no event of its own; the test's timeout is the limit."""
    while not true():
        await asyncio.sleep(0.001)


async def test_R13_the_old_log_is_left_alone_until_a_leader_offers_its_own(target: Target) -> None:
    source = Source(FILE_BYTES)
    source.why = "n1 leads"
    async with Leader(source) as leader:
        task = asyncio.create_task(leader.client(target).run())
        await asyncio.sleep(0.1)
        assert target.wipes == []
        assert (target.folder / "commitlog/old").exists()
        source.why = None
        await task
        target.check(source)


async def test_R13_the_log_of_another_group_or_of_other_files_is_not_taken(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    write_marker(target.marker, Marker("n0", "ab" * 16))
    async with Leader(Source(100)) as leader:
        task = asyncio.create_task(leader.client(target).run())
        await until(lambda: "another group" in caplog.text)
        target.log_file_bytes = 1024
        write_marker(target.marker, Marker("n0"))
        await until(lambda: "mappedFileSizeCommitLog=4194304, this member 1024" in caplog.text)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert target.wipes == []


async def test_the_members_are_asked_in_turn_the_leader_that_was_first(target: Target) -> None:
    follower, source = Source(100), Source(FILE_BYTES + 5)
    follower.why = "n3 leads"
    async with Leader(follower) as one, Leader(source) as other:
        other.party.transport._identity = other.party.transport._identity._replace(self_id="n3")
        await one.client(target, n2=("127.0.0.1", 1), n3=other.party.address).run()
        target.check(source)
    assert follower.reads == []


async def test_R13_a_copy_that_does_not_check_is_made_anew(target: Target) -> None:
    target.mismatches = 1
    source = Source(FILE_BYTES + 5)
    async with Leader(source) as leader:
        await leader.client(target).run()
        target.check(source)
    assert target.wipes == [frozenset(), frozenset()]
    assert sum(size for _, size in source.reads) == 2 * len(source.log)


async def test_a_link_that_is_cut_goes_on_behind_the_files_that_are_done(target: Target) -> None:
    source = Source(3 * FILE_BYTES + 5)
    async with Leader(source) as leader:
        loop = asyncio.get_running_loop()
        cut_at = source.start + 2 * FILE_BYTES

        def cut(position: int) -> None:
            if position < cut_at:
                return
            source.before_read = nothing
            while len((read_marker(target.marker) or Marker()).done) < 2:
                time.sleep(0.001)
            for link in list(leader.server._copies):
                loop.call_soon_threadsafe(link.abort, "cut")

        source.before_read = cut
        await leader.client(target).run()
        target.check(source)
        assert target.wipes == [frozenset(), frozenset({source.start, source.start + FILE_BYTES})]
        again = [position for position, _ in source.reads]
        assert again.count(source.start) == 1


class Crash(BaseException):
    """The process is gone."""


def crash_in_wiping(patch: pytest.MonkeyPatch, target: Target) -> None:
    wipe = target.wipe

    def half(keep: frozenset[int]) -> None:
        (target.folder / "commitlog/old").unlink(missing_ok=True)
        patch.setattr(target, "wipe", wipe)
        raise Crash

    patch.setattr(target, "wipe", half)


def crash_at_byte(position: int) -> Callable[[pytest.MonkeyPatch, Target], None]:
    def plan(patch: pytest.MonkeyPatch, target: Target) -> None:
        write = reset_files.LogWriter.write

        def until_there(self: reset_files.LogWriter, start: int, data: memoryview) -> None:
            if start >= 2 * FILE_BYTES + position:
                raise Crash
            write(self, start, data)

        patch.setattr(reset_files.LogWriter, "write", until_there)

    return plan


def crash_in(module: object, name: str) -> Callable[[pytest.MonkeyPatch, Target], None]:
    def gone(*_: object) -> None:
        raise Crash

    return lambda patch, _: patch.setattr(module, name, gone)


def crash_in_verifying(patch: pytest.MonkeyPatch, target: Target) -> None:
    crash_in(target, "verify")(patch, target)


@pytest.mark.parametrize(
    "plan",
    [
        crash_in_wiping,
        crash_at_byte(0),
        crash_at_byte(MIB),
        crash_at_byte(FILE_BYTES),
        crash_at_byte(2 * FILE_BYTES),
        crash_in(reset_files, "fsync_folder"),
        crash_in(reset_client, "replace_file"),
        crash_in_verifying,
        crash_in(reset_client, "remove_marker"),
    ],
)
async def test_R13_after_a_crash_at_any_point_the_marker_stays_and_the_next_attempt_ends_it(
    target: Target, plan: Callable[[pytest.MonkeyPatch, Target], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(2 * FILE_BYTES + MIB + 3)
    async with Leader(source) as leader:
        with monkeypatch.context() as patch:
            plan(patch, target)
            with pytest.raises(Crash):
                await leader.client(target).run()
        assert read_marker(target.marker) is not None
        await leader.client(target).run()
        target.check(source)


async def test_R13_a_half_written_file_is_never_called_done(target: Target) -> None:
    source = Source(2 * FILE_BYTES)
    # What an earlier attempt left: its marker names the first file; the second is there, but nobody synced it.
    target.wipe(frozenset())
    for start, content in ((source.start, source.log[:FILE_BYTES]), (source.start + FILE_BYTES, b"junk")):
        target.log_path(start).parent.mkdir(exist_ok=True)
        target.log_path(start).write_bytes(content)
    write_marker(target.marker, Marker("n0", GROUP.group_id.hex(), "behind", (source.start,), wiped=True))
    async with Leader(source) as leader:
        await leader.client(target).run()
        target.check(source)
    assert min(position for position, _ in source.reads) == source.start + FILE_BYTES


async def test_a_full_disk_ends_it_with_the_error(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    async with Leader(Source(FILE_BYTES)) as leader:
        with pytest.raises(OSError, match="No space left"):
            await leader.client(target).run()
    assert read_marker(target.marker) is not None


async def test_a_sync_that_fails_ends_it_with_the_error(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(reset_files, "fsync_folder", broken)
    async with Leader(Source(2 * FILE_BYTES)) as leader:
        with pytest.raises(OSError, match="Input/output"):
            await leader.client(target).run()
    marker = read_marker(target.marker)
    assert marker is not None
    assert marker.done == ()


async def test_copies_beyond_the_bound_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(FILE_BYTES)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    targets = [Target(tmp_path / name) for name in ("n1", "n2")]
    for one in targets:
        write_marker(one.marker, Marker("n0"))
    async with Leader(source, copies_max=1) as leader:

        def wait(_: int) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

        source.before_read = wait
        tasks = [
            asyncio.create_task(leader.client(one, name).run()) for one, name in zip(targets, ("n1", "n2"), strict=True)
        ]
        await until(lambda: "copy already; wait until one of them is done" in caplog.text)
        assert source.pins == 1
        gate.set()
        await asyncio.gather(*tasks)
        for one in targets:
            one.check(source)


async def test_a_stranger_gets_no_copy(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    async with Leader(Source(100), secret=b"s") as leader:
        tasks = [asyncio.create_task(leader.client(target, secret=secret).run()) for secret in (b"x", None)]
        tasks.append(asyncio.create_task(leader.client(target, "n9", secret=b"s").run()))
        await until(lambda: "same secret" in caplog.text and "n9 is no member" in caplog.text)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert leader.server._copies == {}
    assert target.wipes == []


async def test_a_member_off_loopback_needs_a_secret(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    peers = {"n0": ("192.0.2.1", 1)}
    client = ResetClient(target.marker, target, self_id="n1", group="g", peers=peers, secrets=(), limits=QUICK)
    task = asyncio.create_task(client.run())
    await until(lambda: "raftSecretFile is not set" in caplog.text)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def manifest_of(source: Source) -> Manifest:
    files = tuple(CopiedFile(*file) for file in source.files_upto(source.end().end))
    return Manifest(GROUP.encode(), source.end(), FILE_BYTES, files, (MetadataFile("topics.json", 3, 5),))


def test_a_manifest_survives_the_way() -> None:
    manifest = manifest_of(Source(2 * FILE_BYTES + 7))
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.log_bytes == 2 * FILE_BYTES + 7


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (0, 2),
        (1, b""),
        (2, [1, 2, 3]),
        (2, [77, 3, FILE_BYTES, 1]),
        (3, 0),
        (3, FILE_BYTES + 1),
        (4, []),
        (4, [[0, FILE_BYTES + 1]]),
        (4, [[2 * FILE_BYTES, 1], [3 * FILE_BYTES, 1], [4 * FILE_BYTES, 7]]),
        (4, [[2 * FILE_BYTES, FILE_BYTES], [4 * FILE_BYTES, 7]]),
        (4, [[2 * FILE_BYTES]]),
        (5, [["../vote", 1, 1]]),
        (5, [["a/b", 1, 1]]),
        (5, [["", 1, 1]]),
        (5, [[".hidden", 1, 1]]),
        (5, [["a", 1, 1], ["a", 1, 1]]),
        (5, [["a", 1 << 30, 1]]),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(item: int, value: object) -> None:
    items = cbor2.loads(manifest_of(Source(2 * FILE_BYTES + 7)).encode())
    items[item] = value
    with pytest.raises(ResetMismatch, match="cannot be read"):
        Manifest.decode(cbor2.dumps(items))


def test_the_marker_counts_whatever_it_says(tmp_path: Path) -> None:
    path = tmp_path / "raft" / "reset"
    assert read_marker(path) is None
    marker = Marker("n2", "ab", "behind", (0, 5), wiped=True)
    write_marker(path, marker)
    write_marker(path, marker)
    assert read_marker(path) == marker
    for content in (b"", b"\xff", b"[]", b"{}", b'{"done": 5}'):
        path.write_bytes(content)
        assert read_marker(path) == Marker()
    remove_marker(path)
    assert read_marker(path) is None
    assert list(path.parent.iterdir()) == []


def test_progress_is_told_and_it_is_quick_enough_on_the_loop_of_the_product(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset_client, "PROGRESS_SECONDS", 0.001)
    target = Target(tmp_path)
    write_marker(target.marker, Marker())

    async def main() -> None:
        source = Source(12 * FILE_BYTES)
        async with Leader(source) as leader:
            await leader.client(target).run()
            target.check(source)

    with caplog.at_level(logging.INFO, "raft"):
        uvloop.run(main())
    assert "of 48 MiB copied from n0" in caplog.text
    assert "raft: copied 51 MiB from n0 at" in caplog.text
