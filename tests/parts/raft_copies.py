"""A leader that serves copies of its log, and a folder to copy it to, without a store."""

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from raft.protocol.config import GroupConfig, Member
from raft.protocol.types import Mark
from raft.snapshot.client import ResetClient
from raft.snapshot.protocol import Manifest, ResetMismatch, read_marker
from raft.snapshot.server import ResetServer
from tests.parts.raft_links import QUICK, Party, secrets_of

MIB = 1 << 20
FILE_BYTES = 4 * MIB
GROUP = GroupConfig(b"G" * 16, (Member("n0", "127.0.0.1:1", b"0" * 16),))


def nothing(_: int) -> None:
    """Nothing happens before a read."""


class Source:
    """A leader's store: a log of random bytes from `start` on, and metadata."""

    def __init__(self, size: int, start: int = 2 * FILE_BYTES, seed: int = 1) -> None:
        self.log_file_bytes = FILE_BYTES
        self.start = start
        self.log = random.Random(seed).randbytes(size)
        self.pins = 0
        self.reads: list[tuple[int, int]] = []
        self.why: str | None = None
        self.files: dict[str, bytes] = {
            "topics.json": b"{}" * 1000,
            "consumerOffset.json": b"",
            "big.json": bytes(3 * MIB),
        }
        self.before_read: Callable[[int], None] = nothing

    def refusal(self) -> str | None:
        return self.why

    def config(self) -> bytes:
        return GROUP.encode()

    def end(self) -> Mark:
        return Mark(77, 3, self.start + len(self.log), zlib.crc32(self.log))

    def files_upto(self, position: int) -> Sequence[tuple[int, int]]:
        starts = range(self.start, position + 1, FILE_BYTES)
        return [(start, min(FILE_BYTES, position - start)) for start in starts]

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1

    def read_bytes(self, position: int, size: int) -> bytes:
        assert self.pins > 0, "what is read is pinned"
        self.before_read(position)
        self.reads.append((position, size))
        return self.log[position - self.start : position - self.start + size]

    def metadata(self) -> Mapping[str, bytes]:
        return self.files


class Target:
    """The folder of a closed store with an old log in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_file_bytes = FILE_BYTES
        self.wipes: list[frozenset[int]] = []
        self.verified: list[Manifest] = []
        self.mismatches = 0
        self.marker = folder / "raft" / "reset"
        for name in ("commitlog/old", "config/old.json", "consumequeue/t/0/old", "raft/vote"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"old")

    def wipe(self, keep: frozenset[int]) -> None:
        assert self.marker.exists(), "the marker is there first"
        self.wipes.append(keep)
        kept = {self.log_path(start) for start in keep} | {self.marker, self.folder / "raft" / "vote"}
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path not in kept and not path.name.startswith("reset"):
                path.unlink()

    def log_path(self, start: int) -> Path:
        return self.folder / "commitlog" / f"{start:020}"

    def metadata_path(self, name: str) -> Path:
        return self.folder / "config" / name

    def verify(self, manifest: Manifest) -> None:
        assert self.marker.exists(), "no part is taken before the copy is checked"
        log = b"".join(self.log_path(start).read_bytes()[:size] for start, size in manifest.files)
        if self.mismatches or zlib.crc32(log) != manifest.end.chain:
            self.mismatches -= 1
            raise ResetMismatch("the chain breaks at 5")
        self.verified.append(manifest)

    def check(self, source: Source) -> None:
        """Everything is as the source has it, zeros behind the end, and the marker is gone."""
        end = source.start + len(source.log)
        log = b"".join(path.read_bytes() for path in sorted((self.folder / "commitlog").iterdir()))
        assert log[: len(source.log)] == source.log
        assert not any(log[len(source.log) :])
        assert len(log) % FILE_BYTES == 0
        assert self.verified[-1].end.end == end
        for name, data in source.files.items():
            assert self.metadata_path(name).read_bytes() == data
        assert not (self.folder / "config/old.json").exists()
        assert (self.folder / "raft/vote").read_bytes() == b"old", "the vote outlives a reset (R6)"
        assert read_marker(self.marker) is None
        assert sorted(path.name for path in self.marker.parent.iterdir()) == ["vote"]


class Leader:
    """A member that serves copies of a source."""

    def __init__(self, source: Source, *, copies_max: int = 2, secret: bytes | None = None, port: int = 0) -> None:
        self.source = source
        self.server = ResetServer(source, copies_max=copies_max)
        self.port = port
        self.party = Party("n0", copies=self.server, secret=secret)

    async def __aenter__(self) -> Self:
        await self.party.start(self.port)
        self.party.transport.set_peers(dict.fromkeys(("n1", "n2", "n3"), ("127.0.0.1", 1)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.party.transport.close()
        self.server.close()
        assert self.source.pins == 0

    def client(
        self, target: Target, name: str = "n1", *, secret: bytes | None = None, **more: tuple[str, int]
    ) -> ResetClient:
        peers = {"n0": self.party.address, **more}
        return ResetClient(
            target.marker, target, self_id=name, group="g", peers=peers, secrets=secrets_of(secret), limits=QUICK
        )
