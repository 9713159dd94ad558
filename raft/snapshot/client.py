"""The copying side of a reset (R13): asks the others for the leader's log until it has all of it, checked and on disk.

Requests for ranges are pipelined; what arrives is written by one thread and synced by another while more arrives. What
goes wrong with the others is logged and tried again; what goes wrong with this disk ends it.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import randbits
from typing import NamedTuple

from raft.network.handshake import Identity
from raft.network.link import Link, LinkLimits
from raft.network.transport import Address, Tls, open_link
from raft.protocol.config import ConfigRefused, GroupConfig
from raft.protocol.messages import MessageKind, RaftMessage
from raft.snapshot.files import LogWriter
from raft.snapshot.protocol import (
    LOG_NAME,
    RANGE_BYTES,
    RANGES_OPEN,
    Manifest,
    Marker,
    ResetMismatch,
    ResetTarget,
    read_marker,
    remove_marker,
    write_marker,
)
from runtime.crc import crc32
from runtime.durable import replace_file
from runtime.listening import is_loopback
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
# How long the end of a link waits until what was said last is sent.
_CLOSE_SECONDS = 0.5
_MIB = 1024 * 1024
_LIMITS = LinkLimits()


class CopyEnded(Exception):
    """The other side refuses, or the link has ended; the text says why. Another attempt may do better."""


class Range(NamedTuple):
    """Bytes of one file."""

    name: str
    start: int
    size: int


class ResetClient:
    """Copies a leader's log into the folder of a store that is not open. The marker file must be there."""

    def __init__(
        self,
        marker: Path,
        target: ResetTarget,
        *,
        self_id: str,
        group: str,
        peers: Mapping[str, Address],
        secrets: tuple[bytes, ...],
        tls: Tls | None = None,
        limits: LinkLimits = _LIMITS,
        rng: random.Random | None = None,
    ) -> None:
        self._path = marker
        self._target = target
        # There is no log to say anything of, so the hello is empty.
        self._identity = Identity(group, self_id, secrets, bytes)
        self._peers = {peer: address for peer, address in peers.items() if peer != self_id}
        self._tls = tls
        self._limits = limits
        self._rng = rng or random.Random()
        self._said: dict[str, str] = {}

    async def run(self) -> Manifest:
        """Return once the copy is whole and the marker gone. Raises OSError when this disk fails; may be cancelled."""
        wait = self._limits.backoff_first_seconds
        while True:
            marker = self._marker()
            for peer in sorted(self._peers, key=lambda peer: (peer != marker.leader, peer)):
                try:
                    return await self._copy(peer)
                except (CopyEnded, ResetMismatch) as error:
                    self._say(peer, str(error))
            await asyncio.sleep(wait * (1 + self._rng.random() / 4))
            wait = min(wait * 2, self._limits.backoff_max_seconds)

    # ---- one attempt

    async def _copy(self, peer: str) -> Manifest:
        async with self._linked(peer) as session:
            manifest = await session.ask()
            marker = self._accept(peer, manifest)
            begin = asyncio.get_running_loop().time()
            progress = _Progress(peer, manifest, len(marker.done))
            await self._fill(session, manifest, marker, progress)
            session.done()
            took = asyncio.get_running_loop().time() - begin
            rate = progress.copied / _MIB / max(took, 0.001)
            _log.info("raft: copied %d MiB from %s at %.0f MiB/s", progress.copied // _MIB, peer, rate)
        try:
            await asyncio.to_thread(self._target.verify, manifest)
        except ResetMismatch:
            # Nothing of it can be trusted; the wiping is repeated too.
            write_marker(self._path, self._marker()._replace(done=(), wiped=False))
            raise
        remove_marker(self._path)
        _log.info("raft: the log is whole up to index %d; this member takes part again", manifest.end.index)
        return manifest

    def _accept(self, peer: str, manifest: Manifest) -> Marker:
        """Check that this is the log to copy, and note so; ResetMismatch when it is another one."""
        marker = self._marker()
        try:
            group_id = GroupConfig.decode(manifest.config).group_id.hex()
        except ConfigRefused as error:
            raise ResetMismatch(str(error)) from error
        if marker.group_id not in {"", group_id}:
            raise ResetMismatch(f"it has the log of another group ({group_id}) than this member ({marker.group_id})")
        if manifest.log_file_bytes != self._target.log_file_bytes:
            ours = self._target.log_file_bytes
            raise ResetMismatch(f"it has mappedFileSizeCommitLog={manifest.log_file_bytes}, this member {ours} (R17)")
        _log.warning(
            "raft: this store is replaced by a copy of %s's, %d MiB up to index %d (%s)",
            peer,
            manifest.log_bytes // _MIB,
            manifest.end.index,
            marker.why or "it was behind what the group retains",
        )
        # A file that is done is a whole one, and those are the same wherever they are copied from.
        whole = {file.start for file in manifest.files if file.size == manifest.log_file_bytes}
        done = tuple(start for start in marker.done if start in whole) if marker.wiped else ()
        return marker._replace(leader=peer, group_id=group_id, done=done)

    async def _fill(self, session: "_Session", manifest: Manifest, marker: Marker, progress: "_Progress") -> None:
        """Copy log and metadata. From here on what is in the folder belongs to the copy."""
        await asyncio.to_thread(self._target.wipe, frozenset(marker.done))
        notes = _Notes(self._path, marker._replace(wiped=True))
        with LogWriter(manifest.log_file_bytes, self._target.log_path, notes.file_done) as writer:
            missing = [file for file in manifest.files if file.start not in notes.marker.done]

            def write(part: Range, data: memoryview) -> None:
                writer.write(part.start, data)

            for file in missing:
                writer.expect(file.start, file.size)
            ranges = (part for file in missing for part in _ranges(LOG_NAME, file.start, file.size))
            await session.fetch(ranges, write, progress)
            await asyncio.to_thread(writer.finish)
        for wanted in manifest.metadata:
            content = bytearray(wanted.size)

            def put(part: Range, data: memoryview, content: bytearray = content) -> None:
                content[part.start : part.start + part.size] = data

            await session.fetch(_ranges(wanted.name, 0, wanted.size), put, progress)
            if crc32(content) != wanted.crc:
                raise ResetMismatch(f"the metadata file {wanted.name} came with another CRC than announced")
            await asyncio.to_thread(replace_file, self._target.metadata_path(wanted.name), bytes(content))

    @asynccontextmanager
    async def _linked(self, peer: str) -> "AsyncIterator[_Session]":
        session = _Session()
        beats = Tasks("raft-reset")
        address = self._peers[peer]
        if not self._identity.secrets and not is_loopback(address[0]):
            raise CopyEnded("it is not on loopback and raftSecretFile is not set")
        try:
            link = await open_link(self._identity, peer, "copy", address, self._limits, self._tls, session)
        except OSError as error:
            raise CopyEnded(f"no connection: {error}") from error
        try:
            beats.every(self._limits.beat_seconds, link.beat, "beat")
            await session.opened
            yield session
        finally:
            await beats.close()
            link.close("done")
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await link.ended.wait()
            link.abort("done")

    def _marker(self) -> Marker:
        marker = read_marker(self._path)
        assert marker is not None, "the marker is written first and removed last"
        return marker

    def _say(self, peer: str, why: str) -> None:
        """Log a reason once, not at each attempt that fails for it."""
        if self._said.get(peer) != why:
            self._said[peer] = why
            _log.warning("raft: no copy from %s: %s", peer, why)


class _Notes:
    """Keeps the marker file up to date; called in the thread that syncs."""

    def __init__(self, path: Path, marker: Marker) -> None:
        self._path = path
        self.marker = marker
        write_marker(path, marker)

    def file_done(self, start: int) -> None:
        self.marker = self.marker._replace(done=(*self.marker.done, start))
        write_marker(self._path, self.marker)


class _Progress:
    """Counts, and logs now and then."""

    def __init__(self, peer: str, manifest: Manifest, files_kept: int) -> None:
        self._peer = peer
        self._total = manifest.log_bytes - files_kept * manifest.log_file_bytes
        self._next = asyncio.get_running_loop().time() + PROGRESS_SECONDS
        self.copied = 0

    def add(self, size: int) -> None:
        self.copied += size
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            _log.info("raft: %d of %d MiB copied from %s", self.copied // _MIB, self._total // _MIB, self._peer)


class _Session:
    """The copying side's end of one link (raft.network.link.LinkOwner): questions, and the answers in their order."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self._token = randbits(32)
        self._link: Link | None = None
        # At most RANGES_OPEN answers, since so many questions are open.
        self._answers: asyncio.Queue[RaftMessage | None] = asyncio.Queue()
        self._ended = ""

    def link_made(self, link: Link) -> None:
        """Nothing to do before the handshake is done."""

    def link_opened(self, link: Link) -> None:
        """Let the copy begin."""
        self._link = link
        if not self.opened.done():
            self.opened.set_result(None)

    def link_received(self, link: Link, message: RaftMessage) -> None:
        """Keep an answer for who waits for it."""
        if self._answers.qsize() > RANGES_OPEN:
            link.abort("it answers more than it was asked")
            return
        self._answers.put_nowait(message)

    def link_closed(self, link: Link, reason: str) -> None:  # noqa: ARG002 - LinkOwner's signature
        """End the waiting."""
        self._ended = reason
        if not self.opened.done():
            self.opened.set_exception(CopyEnded(reason))
        self._answers.put_nowait(None)

    async def ask(self) -> Manifest:
        """Return what there is to copy; CopyEnded when this member serves no copy."""
        self._send(MessageKind.RESET_ASK)
        answer = await self._answer(MessageKind.RESET_MANIFEST)
        if not answer.payload:
            raise CopyEnded("it sent an empty manifest")
        return Manifest.decode(answer.payload[0])

    async def fetch(
        self, ranges: Iterable[Range], put: Callable[[Range, memoryview], None], progress: _Progress
    ) -> None:
        """Have all ranges sent, several asked for at a time, and `put` (in a thread) what comes, in order."""
        wanted = iter(ranges)
        asked: deque[Range] = deque()
        while True:
            while len(asked) < RANGES_OPEN and (part := next(wanted, None)) is not None:
                self._send(MessageKind.RESET_READ, name=part.name, start=part.start, size=part.size)
                asked.append(part)
            if not asked:
                return
            answer = await self._answer(MessageKind.RESET_BYTES)
            part = asked.popleft()
            fields = answer.fields
            data = memoryview(answer.payload[0] if answer.payload else b"")
            got = Range(fields["name"], fields["start"], len(data))
            if got != part:
                raise CopyEnded(f"it sent {got} where {part} is due")
            await asyncio.to_thread(_checked, put, part, data, fields["crc"])
            progress.add(part.size)

    def done(self) -> None:
        """Let the other side release what it holds."""
        self._send(MessageKind.RESET_DONE)

    def _send(self, kind: MessageKind, **fields: object) -> None:
        if self._link is None or not self._link.send(RaftMessage(kind, {"token": self._token, **fields})):
            raise CopyEnded(self._ended or "the link takes no more")

    async def _answer(self, kind: MessageKind) -> RaftMessage:
        answer = await self._answers.get()
        if answer is None:
            raise CopyEnded(f"the link has ended: {self._ended}")
        if answer.kind is not kind or answer.fields["token"] != self._token:
            raise CopyEnded(f"it answers {answer.kind.name} where {kind.name} is due")
        if not answer.fields["ok"]:
            raise CopyEnded(f"it refuses: {answer.fields['why']}")
        return answer


def _checked(put: Callable[[Range, memoryview], None], part: Range, data: memoryview, crc: int) -> None:
    if crc32(data) != crc:
        raise CopyEnded(f"{part.size} bytes at {part.start} of {part.name} came with another CRC than announced")
    put(part, data)


def _ranges(name: str, start: int, size: int) -> Iterable[Range]:
    for position in range(start, start + size, RANGE_BYTES):
        yield Range(name, position, min(RANGE_BYTES, start + size - position))
