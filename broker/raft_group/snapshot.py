"""A reset (R13) as far as it concerns the store: what a leader gives away of its own, and where a copy is put.

The other half, links and ranges, is raft/reset*.py. A member that copies has no open store; its folder is locked all
the same. What it copied is checked by opening it as a group's store does after a crash, with the floor at its end:
then each record's CRC and the chain are looked at, and nothing that does not fit is cut silently.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from broker.metadata.meta_entry import deleted_topics
from broker.metadata.users import FILE_MODE
from broker.metadata.users import FILE_NAME as USERS_FILE
from broker.settings.decision import NAME as MODE_NAME
from broker.settings.pair_memory import PAIR_NAME
from broker.settings.raft_keys import RaftKeys, link_tls, read_secrets
from raft.protocol.settings import RaftSettings
from raft.protocol.types import Mark
from raft.snapshot.client import ResetClient
from raft.snapshot.protocol import Manifest, Marker, ResetMismatch, read_marker
from runtime.durable import fsync_folder
from store.config import StoreConfig
from store.controlrecord import decode_control
from store.errors import StoreError
from store.events import Payloads
from store.files.disk import Disk
from store.files.floorfile import VOTE_NAME, FloorFile
from store.files.lockfile import ABORT_NAME, LOCK_NAME, LockFile
from store.files.owner_only import CUT_FOLDER
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog

MARKER = "raft/reset"
VOTE = VOTE_NAME
CONFIG_FOLDER = "config"
# Files beside the metadata that are about this broker alone: what a command made of it, and of its masters.
OWN_FILES = frozenset({Path(MODE_NAME).name, Path(PAIR_NAME).name})
# What a wiping leaves: who this member is, what it promised, that it is being reset; and what is kept for people.
_MODE = f"{CONFIG_FOLDER}/{MODE_NAME}"
_KEPT = frozenset({MARKER, MARKER + ".bak", VOTE, VOTE + ".bak", LOCK_NAME, _MODE, _MODE + ".bak", CUT_FOLDER})


class StoreSource:
    """What a leader serves copies from; see ResetSource."""

    def __init__(self, config: StoreConfig, entries: EntryLog, refusal: Callable[[], str | None]) -> None:
        """`refusal` tells why no copy is served now."""
        self._config = config
        self._entries = entries
        self.refusal = refusal
        self.pin = entries.copies.pin
        self.unpin = entries.copies.unpin
        self.files_upto: Callable[[int], Sequence[tuple[int, int]]] = entries.copies.files_upto
        self.read_bytes = entries.copies.read_bytes

    @property
    def log_file_bytes(self) -> int:
        """Size of one log file."""
        return self._config.mappedFileSizeCommitLog

    def config(self) -> bytes:
        """Return the payload of the CONFIG in force."""
        return self._entries.payload(self._entries.last_config())

    def end(self) -> Mark:
        """Return the mark of the commit point."""
        entries = self._entries
        index = entries.released
        if index == entries.base.index:
            return Mark(*entries.base)
        (entry, *_) = entries.read(index, 1)
        control = decode_control(entry.data)
        return Mark(index, control.term, entries.end_position(index), control.chain)

    def metadata(self) -> Mapping[str, bytes]:
        """Return the metadata files as they are on disk: their stamps say what of the log must follow."""
        folder = self._config.root / CONFIG_FOLDER
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json")) if path.name not in OWN_FILES}


class StoreTarget:
    """The folder that a copy is put into; see ResetTarget."""

    def __init__(self, config: StoreConfig, store_host: bytes) -> None:
        """`store_host` as records hold it."""
        self._config = config
        self._store_host = store_host
        self._lock: LockFile | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away from the folder. Raises StoreLocked, OSError."""
        self._lock = LockFile(self._config.root)
        try:
            yield
        finally:
            self._lock.release()

    @property
    def log_file_bytes(self) -> int:
        """Size of one log file, as configured."""
        return self._config.mappedFileSizeCommitLog

    def wipe(self, keep: frozenset[int]) -> None:
        """Remove everything but the vote, the marker and the log files that begin at `keep`; see ResetTarget."""
        root, log = self._config.root, self._config.log_folder
        kept = {root / name for name in _KEPT} | {self.log_path(start) for start in keep} | {log / CUT_FOLDER}
        _wipe(root, kept)
        if log.exists():
            # It may be elsewhere.
            _wipe(log, kept)
        for folder in (log, root / CONFIG_FOLDER):
            folder.mkdir(parents=True, exist_ok=True)
            fsync_folder(folder)
        # There from the start: an interrupted copy must never look like a store that was stopped cleanly.
        (root / ABORT_NAME).write_text("reset", encoding="ascii")
        fsync_folder(root)

    def log_path(self, start: int) -> Path:
        """Return where the log file that begins at a position stands."""
        return self._config.log_folder / f"{start:020d}"

    def metadata_path(self, name: str) -> Path:
        """Return where a metadata file stands."""
        if name in OWN_FILES:
            raise ResetMismatch(f"{name} tells of the leader alone, and is no metadata of the group")
        path = self._config.root / CONFIG_FOLDER / name
        if name == USERS_FILE:
            # What is written over it stays its owner's.
            path.touch(mode=FILE_MODE)
        return path

    def verify(self, manifest: Manifest) -> None:
        """Check every record's CRC and the chain; see ResetTarget."""
        end = Mark(*manifest.end)
        floor = FloorFile(self._config.root, Disk())
        try:
            floor.advance(end, floor.epoch)
        finally:
            floor.close()
        assert self._lock is not None
        # The store takes the lock itself.
        self._lock.release()
        try:
            self._open_and_compare(end)
        finally:
            self._lock = LockFile(self._config.root)

    def _open_and_compare(self, end: Mark) -> None:
        try:
            payloads = Payloads(deleted_topics)
            store = MessageStore.open(
                self._config, store_host=self._store_host, group=True, stepped=True, payloads=payloads
            )
        except StoreError as error:
            raise ResetMismatch(f"what was copied cannot be opened: {error}") from error
        try:
            entries = store.entries
            assert entries is not None
            if not entries.whole or entries.last != end:
                raise ResetMismatch(
                    f"what was copied ends at {entries.last} (damaged: {entries.damaged}), not at {end}"
                )
        finally:
            store.close()


def _wipe(folder: Path, kept: set[Path]) -> None:
    """Remove what is in a folder, except for files that are kept and the folders that they are in."""
    for path in folder.iterdir():
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            if any(path in each.parents for each in kept):
                _wipe(path, kept)
            else:
                shutil.rmtree(path)
        else:
            path.unlink()


def is_marked(root: Path) -> bool:
    """Tell whether a store must be replaced by a copy before it is opened."""
    return read_marker(root / MARKER) is not None


def copy_peers(settings: RaftSettings, marker: Marker) -> dict[str, tuple[str, int]]:
    """Return whom a copy may be asked of: those of the configuration file, and those that the group had last."""
    peers = {peer.id: (peer.host, peer.port) for peer in settings.peers}
    for member_id, address in marker.peers:
        host, _, port = address.rpartition(":")
        if port.isdecimal():
            peers[member_id] = (host.strip("[]"), int(port))
    return peers


async def copy_from_leader(config: StoreConfig, keys: RaftKeys, settings: RaftSettings, store_host: bytes) -> None:
    """Replace a marked store by a copy of the leader's; returns when it is whole, however long that takes.

    May be cancelled, and goes on where it was at the next start. Raises ConfigError, StoreLocked, OSError.
    """
    target = StoreTarget(config, store_host)
    client = ResetClient(
        config.root / MARKER,
        target,
        self_id=settings.self_id,
        group=settings.group,
        peers=copy_peers(settings, read_marker(config.root / MARKER) or Marker()),
        secrets=read_secrets(keys),
        tls=link_tls(keys),
    )
    with target.locked():
        await client.run()
