"""A command's decision about what this broker is, which outlives a restart without an edit of broker.conf.

`raftmq cluster promote`, `follow`, `to-raft` and `to-classic` change keys that say what a broker is (DECIDABLE). They
stand in `<storePathRootDir>/config/mode.json`, replaced atomically, and are in force instead of what broker.conf and
the command line say, as long as those still say what they said at the decision. Once a person has changed one of these
keys there, the person wins: the decision is removed, and a warning says so. A file that cannot be read keeps the broker
from starting: it may be what keeps a deposed master from taking messages.

    broker_config, store_config, unknown = override.load(values)     # at every start, also within the process
    ...
    override.decide(live, {"brokerRole": "SLAVE", "brokerId": "1"}, why="it follows b", epoch=role.term)
    broker.restart(RestartAction("becomes a slave"))                 # broker/settings/restart.py

A decision adds to the one that is in force: keys that it does not name stay as decided before. `decide` has fsynced
when it returns, takes milliseconds (call it in a thread), and refuses what could not start (ConfigError). The file:

    {"keys": {"brokerRole": "ASYNC_MASTER", ...}, "instead_of": {"brokerRole": "SLAVE", ...}, "why": "...", "epoch": 4}

and, where they apply, "founder": true with "log_end", "joins", "deposes" (see Override), and
"fenced": {"by": "host:port", "epoch": 4}.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker.settings.config import BrokerConfig, LiveConfig, load_broker_config
from runtime.config import ConfigError, build_config, config_values, format_properties, parse_properties, replace_config
from runtime.durable import fsync_folder, replace_file
from store.config import StoreConfig

_log = logging.getLogger(__name__)

NAME = "mode.json"
# Bytes of the file; ours have some hundred.
FILE_BYTES_MAX = 64 * 1024
# The keys that a decision may be about. Their defaults depend on no other key, so that what broker.conf says about one
# can be told from that one alone.
DECIDABLE = frozenset(
    {
        "brokerRole",
        "brokerId",
        "enableDLegerCommitLog",
        "dLegerGroup",
        "dLegerPeers",
        "dLegerSelfId",
        "preferredLeaderId",
    }
)

# Decisions are made in threads, and what is in the file is part of the next one.
_changing = threading.Lock()


class Overtaken(ConfigError):
    """A fence that comes when a command has decided already what becomes of this broker: it starts again soon."""


class Fence(msgspec.Struct, frozen=True):
    """Which master was promoted in the place of this one."""

    by: str
    """Its address, "host:port"."""
    epoch: int


class Override(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision; texts as broker.conf would hold them."""

    keys: dict[str, str]
    """What is in force."""
    instead_of: dict[str, str]
    """What broker.conf (or the default) said about the same keys when it was decided."""
    why: str
    """For people: what was done, by which command."""
    epoch: int = 0
    """What the stateVersion of the topic table is at least (rule R15); see kept_epoch."""
    founder: bool = False
    """This store founds the Raft group of dLegerPeers alone, whatever the others hold, for a person said so."""
    log_end: int = -1
    """Where the log of a founder ended, on disk, when it was decided: another log founds nothing."""
    joins: str = ""
    """Id, in hexadecimal, of the Raft group that this store comes to with the messages that it holds."""
    fenced: Fence | None = None
    """Set: this broker is a deposed master, and takes nothing until a person has decided what it is."""
    deposes: tuple[str, ...] = ()
    """Addresses of masters in whose place this one was promoted, and who are still to be told (Deposing)."""

    def changes(self) -> list[str]:
        """Return "key=value instead of value" for everything that broker.conf does not say itself."""
        return [
            f"{key}={value} instead of {self.instead_of[key] or 'nothing'}"
            for key, value in sorted(self.keys.items())
            if value != self.instead_of[key]
        ]


def load(values: Mapping[str, str], *, look_only: bool = False) -> tuple[BrokerConfig, StoreConfig, list[str]]:
    """Make both configurations of the texts of a broker.conf as load_broker_config does, with the decision in force.

    `look_only`: say nothing and leave the file alone. Raises ConfigError, OSError.
    """
    in_force, _ = apply(values, _root(values), look_only=look_only)
    return load_broker_config(in_force)


def apply(values: Mapping[str, str], root: Path, *, look_only: bool = False) -> tuple[dict[str, str], Override | None]:
    """Return the texts that are in force, and the decision when one is.

    One that a person has overtaken in broker.conf is removed, unless `look_only`. Raises ConfigError, OSError.
    """
    found = read(root)
    if found is None:
        return dict(values), None
    said = {key: _said(key, values.get(key)) for key in found.instead_of}
    changed = sorted(key for key, before in found.instead_of.items() if said[key] != before)
    if not changed:
        if not look_only:
            _announce(found)
        return {**values, **found.keys}, found
    if not look_only:
        _log.warning(
            "broker.conf says %s, which was changed after a command had decided otherwise (%s): broker.conf counts, "
            "the decision is removed",
            ", ".join(f"{key}={said[key] or 'nothing'}" for key in changed),
            found.why,
        )
        _remove(root)
    return dict(values), None


def decide(
    live: LiveConfig,
    keys: Mapping[str, str],
    *,
    why: str,
    epoch: int,
    founder: bool = False,
    log_end: int = -1,
    joins: str = "",
    fenced: Fence | None = None,
    deposes: Sequence[str] = (),
) -> Override:
    """Put `keys` in force from the next start on; durable when it returns. The rest: see Override.

    Raises ConfigError when a broker could not start with them, Overtaken (nothing is written then), OSError.
    """
    assert keys.keys() <= DECIDABLE, f"not for commands to decide: {sorted(keys.keys() - DECIDABLE)}"
    replace_config(live.broker, keys)
    made = Override(
        keys={key: _said(key, text) for key, text in keys.items()},
        instead_of={},
        why=why,
        epoch=epoch,
        founder=founder,
        log_end=log_end,
        joins=joins,
        fenced=fenced,
        deposes=tuple(deposes),
    )
    with _changing:
        return _decide(live, made)


def _decide(live: LiveConfig, made: Override) -> Override:
    before = read(live.store.root)
    in_force = _texts(live.broker)
    if made.fenced is not None and before is not None:
        # Of a fence the keys and the epoch are those that this process runs with.
        later = [key for key, text in made.keys.items() if before.keys.get(key, text) != text]
        if later or before.epoch > made.epoch:
            raise Overtaken(f"another decision is being carried out: {before.why}")
    # What was decided before is not what the file says.
    instead_of = {key: in_force[key] for key in made.keys} | ({} if before is None else before.instead_of)
    keys = {**({} if before is None else before.keys), **made.keys}
    made = msgspec.structs.replace(made, keys=keys, instead_of=instead_of)
    write(live.store.root, made)
    return made


def begun(root: Path) -> None:
    """Note that the store has come to its Raft group: from now on its log says so, and nothing else. Raises OSError."""
    with _changing:
        found = read(root)
        if found is not None and (found.founder or found.joins):
            write(root, msgspec.structs.replace(found, founder=False, log_end=-1, joins=""))


def told(root: Path, address: str) -> None:
    """Note that a master knows that it was deposed. Raises ConfigError, OSError."""
    with _changing:
        found = read(root)
        if found is not None and address in found.deposes:
            write(
                root, msgspec.structs.replace(found, deposes=tuple(each for each in found.deposes if each != address))
            )


def read(root: Path) -> Override | None:
    """Return the decision in a store's folder, None without one. Raises ConfigError, OSError."""
    path = root / "config" / NAME
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        # Where there can be no store, opening it says so.
        return None
    try:
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"more than {FILE_BYTES_MAX} bytes")
        found = msgspec.json.decode(content, type=Override)
        if found.keys.keys() - found.instead_of.keys() or found.keys.keys() - DECIDABLE:
            raise ConfigError("keys that no command decides")
    except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(
            f"{path} cannot be used ({error}): it tells what a command made of this broker; say it in broker.conf "
            f"(brokerRole, brokerId or enableDLegerCommitLog) as it was last, then move the file away"
        ) from None
    return found


def write(root: Path, override: Override) -> None:
    """Replace the decision in a store's folder; durable when it returns. Raises OSError."""
    folder = root / "config"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / NAME, msgspec.json.format(msgspec.json.encode(override), indent=2) + b"\n")


def kept_epoch(root: Path) -> int:
    """Return the epoch of a store: the larger of the topic table's stateVersion on disk and the decision's.

    Raises ConfigError, OSError; a topic table that cannot be read counts as none here, TopicTable complains about it.
    """
    decided = read(root)
    return max(_table_epoch(root / "config" / "topics.json"), 0 if decided is None else decided.epoch)


class _Versioned(msgspec.Struct):
    """All that is read of topics.json."""

    dataVersion: dict[str, Any] = {}


def _table_epoch(path: Path) -> int:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    try:
        version = msgspec.json.decode(content, type=_Versioned).dataVersion
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    epoch = version.get("stateVersion", 0)
    return epoch if isinstance(epoch, int) else 0


def _announce(found: Override) -> None:
    if changes := found.changes():
        _log.warning(
            "in force: %s, because %s; whoever changes these keys in broker.conf ends that",
            ", ".join(changes),
            found.why,
        )


def _remove(root: Path) -> None:
    folder = root / "config"
    (folder / NAME).unlink(missing_ok=True)
    fsync_folder(folder)


def _root(values: Mapping[str, str]) -> Path:
    """Return the folder of the store that the texts name."""
    named = {key: text for key, text in values.items() if key == "storePathRootDir"}
    store, _ = build_config(StoreConfig, named)
    return store.root


def _said(key: str, text: str | None) -> str:
    """Return what broker.conf says about a key, in one form: the default where it does not name it."""
    if text is None:
        return _texts(BrokerConfig())[key]
    kind = type(config_values(BrokerConfig())[key])
    cleaned = text.strip()
    if kind is bool:
        return cleaned.lower()
    return str(int(cleaned)) if kind is int and cleaned.lstrip("-").isdecimal() else cleaned


def _texts(config: BrokerConfig) -> dict[str, str]:
    """Return the decidable keys of a configuration as a broker.conf would have them."""
    values = config_values(config)
    return parse_properties(format_properties({key: values[key] for key in DECIDABLE}))
