"""The leader's side of a reset (R13): answers members that copy its log, a few at a time.

One copy is one link. The log is pinned from the manifest until the copy is done or the link ends, whichever is first.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from raft.network.link import Link
from raft.protocol.messages import MessageKind, RaftMessage
from raft.snapshot.protocol import LOG_NAME, RANGES_OPEN_MAX, CopiedFile, Manifest, MetadataFile, ResetSource
from runtime.crc import crc32

_log = logging.getLogger(__name__)

# Copies served at once: each has its share of the leader's disk and network. A further member is told to wait.
COPIES_MAX = 2

Reply = tuple[bytes | memoryview, int]


class ResetServer:
    """Serves copies from a `ResetSource`: the transport's CopyDesk, which gets the links for copies."""

    def __init__(self, source: ResetSource, *, copies_max: int = COPIES_MAX) -> None:
        self._source = source
        self._copies_max = copies_max
        self._copies: dict[Link, _Copy] = {}
        # Reads may have to wait for the disk, for which the loop must not.
        self._pool = ThreadPoolExecutor(1, "raft-reset-read")

    @property
    def copying(self) -> list[str]:
        """The members that copy at the moment."""
        return [link.peer for link, copy in self._copies.items() if copy.manifest is not None]

    def admit(self, link: Link) -> None:
        """Take a new link over; an older one of the same member is closed, its owner has given it up."""
        for other in [other for other in self._copies if other.peer == link.peer]:
            other.abort("the member has begun another copy")
        self._copies[link] = _Copy(link, self._source, self._pool)

    def receive(self, link: Link, message: RaftMessage) -> None:
        """Take a message of a member that copies."""
        copy = self._copies.get(link)
        if copy is None:
            return
        if message.kind is MessageKind.RESET_ASK:
            token = message.fields["token"]
            why = self._refusal(copy)
            if why is None:
                copy.begin(token)
            else:
                link.send(RaftMessage(MessageKind.RESET_MANIFEST, {"token": token, "ok": False, "why": why}))
        elif message.kind is MessageKind.RESET_READ and message.fields["token"] == copy.token:
            copy.read(message)
        elif message.kind is MessageKind.RESET_DONE and message.fields["token"] == copy.token:
            _log.info("raft: %s has copied the log", link.peer)
            copy.end()
        else:
            link.abort(f"a {message.kind.name} has no place in a copy")

    def gone(self, link: Link) -> None:
        """Release what the copy held."""
        copy = self._copies.pop(link, None)
        if copy is not None:
            if copy.manifest is not None:
                _log.warning("raft: the copy of %s was cut short", link.peer)
            copy.end()

    def close(self) -> None:
        """End all copies."""
        for link in list(self._copies):
            link.abort("this member stops")
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _refusal(self, copy: "_Copy") -> str | None:
        if copy.manifest is not None:
            return "this link has its manifest already"
        if len(self.copying) >= self._copies_max:
            return f"{', '.join(self.copying)} copy already; wait until one of them is done"
        return self._source.refusal()


class _Copy:
    """One member's copy."""

    def __init__(self, link: Link, source: ResetSource, pool: ThreadPoolExecutor) -> None:
        self.manifest: Manifest | None = None
        self.token = -1
        self._link = link
        self._source = source
        self._pool = pool
        self._files: Mapping[int, CopiedFile] = {}
        self._metadata: Mapping[str, bytes] = {}
        self._reads: deque[RaftMessage] = deque()
        self._reading: asyncio.Task[None] | None = None

    def begin(self, token: int) -> None:
        """Pin the log, and say what there is."""
        source = self._source
        source.pin()
        try:
            # Metadata first: none of it may be of a later entry than the log's end.
            metadata = dict(source.metadata())
            end = source.end()
            manifest = Manifest(
                source.config(),
                end,
                source.log_file_bytes,
                tuple(CopiedFile(*file) for file in source.files_upto(end.end) if file[1]),
                tuple(MetadataFile(name, len(data), crc32(data)) for name, data in metadata.items()),
            )
            manifest.check()
        except Exception as error:
            source.unpin()
            _log.exception("raft: no copy for %s", self._link.peer)
            fields = {"token": token, "ok": False, "why": f"no manifest can be made: {error}"[:500]}
            self._link.send(RaftMessage(MessageKind.RESET_MANIFEST, fields))
            return
        self.token = token
        self.manifest = manifest
        self._metadata = metadata
        self._files = {file.start: file for file in manifest.files}
        _log.info("raft: %s copies %d bytes of log up to index %d", self._link.peer, manifest.log_bytes, end.index)
        fields = {"token": token, "ok": True, "why": ""}
        self._link.send(RaftMessage(MessageKind.RESET_MANIFEST, fields, (manifest.encode(),)))

    def read(self, request: RaftMessage) -> None:
        """Answer a request for bytes, in its turn."""
        if len(self._reads) >= RANGES_OPEN_MAX:
            self._link.abort(f"more than {RANGES_OPEN_MAX} requests at once")
            return
        self._reads.append(request)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_all(), name=f"copy {self._link.peer}")

    def end(self) -> None:
        """Let go of everything."""
        if self.manifest is not None:
            self.manifest = None
            self.token = -1
            self._metadata = {}
            self._source.unpin()
        self._reads.clear()

    async def _read_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._reads and self.manifest is not None:
            fields = self._reads[0].fields
            name, start, size = fields["name"], fields["start"], fields["size"]
            answer = {"token": self.token, "name": name, "start": start}
            why = self._outside(name, start, size)
            if why is None:
                try:
                    data, crc = await loop.run_in_executor(self._pool, self._bytes, name, start, size)
                except Exception as error:
                    why = f"{size} bytes at {start} of {name} cannot be read: {type(error).__name__}: {error}"[:500]
            if self.manifest is None:
                break
            self._reads.popleft()
            if why is not None:
                _log.error("raft: the copy of %s: %s", self._link.peer, why)
                self._link.send(RaftMessage(MessageKind.RESET_BYTES, {**answer, "ok": False, "why": why, "crc": 0}))
            elif not self._link.send(
                RaftMessage(MessageKind.RESET_BYTES, {**answer, "ok": True, "why": "", "crc": crc}, (data,))
            ):
                self._link.abort("it does not take what it asked for")
        self._reading = None

    def _outside(self, name: str, start: int, size: int) -> str | None:
        if name == LOG_NAME:
            assert self.manifest is not None, "a copy that is on"
            file = self._files.get(start - start % self.manifest.log_file_bytes)
            inside = file is not None and start + size <= file.start + file.size
        else:
            inside = start + size <= len(self._metadata.get(name, b""))
        return None if inside else f"{size} bytes at {start} of {name} are not part of the copy"

    def _bytes(self, name: str, start: int, size: int) -> Reply:
        data: bytes | memoryview
        if name == LOG_NAME:
            data = self._source.read_bytes(start, size)
        else:
            data = memoryview(self._metadata[name])[start : start + size]
        if len(data) != size:
            raise OSError(f"{len(data)} of {size} bytes could be read")
        return data, crc32(data)
