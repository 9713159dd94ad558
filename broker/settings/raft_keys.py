"""The keys of a Raft group, and how they become the group's settings.

dLegerPeers, dLegerSelfId and the others are RocketMQ's. A member's number, the digits of its id, decides its brokerId
(number + 1; 0 only while it leads), so that it never changes with the order of the list. dLegerPeers counts at
bootstrap only: afterwards the membership stands in the log.
"""

import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from broker.settings.secret_files import read_secret_files, secret_paths
from raft.network.transport import Tls
from raft.protocol.config import GroupConfig, member_number
from raft.protocol.settings import RaftSettings, parse_peers
from runtime.config import ConfigError
from runtime.listening import is_loopback
from runtime.tls import Contexts, ServerTls, tls_words


@dataclass(frozen=True, slots=True)
class RaftKeys:
    """The part of BrokerConfig that makes it a member of a group; without enableDLegerCommitLog it means nothing."""

    enableDLegerCommitLog: bool = False
    dLegerGroup: str = ""  # empty: brokerName
    dLegerPeers: str = ""  # "n0-host:port;n1-host:port;…"; counts at bootstrap only
    dLegerSelfId: str = ""  # "n" and a number; brokerId is the number + 1, and 0 while it leads
    preferredLeaderId: str = ""  # leadership goes to it whenever it is there and has caught up
    raftHeartbeatMs: int = 100  # ours, as all that follow
    raftElectionMsMin: int = 500
    raftElectionMsMax: int = 1000
    raftSecretFile: str = ""  # required as soon as a member is not on loopback; two, "old;new", while it is changed
    raftBindAddress: str = (
        ""  # empty: loopback when all members are there, else bindAddress; members are dialled from it too
    )
    raftListenPort: int = 0  # 0: the port of this member in dLegerPeers; another one behind a port mapping
    raftTlsCertFile: str = ""
    raftTlsKeyFile: str = ""
    raftTlsCaFile: str = ""
    shutdownForwardMs: int = 3000  # how long a stopping member still forwards to the new leader


def group_settings(keys: RaftKeys, name: str) -> RaftSettings:
    """Return what the keys say, checked; `name` is the group's. Raises ConfigError."""
    settings = RaftSettings(
        self_id=keys.dLegerSelfId,
        group=name,
        peers=parse_peers(keys.dLegerPeers),
        heartbeat_ms=keys.raftHeartbeatMs,
        election_ms_min=keys.raftElectionMsMin,
        election_ms_max=keys.raftElectionMsMax,
        preferred_leader=keys.preferredLeaderId,
        dial_from=_dial_from(keys.raftBindAddress),
    )
    settings.validate()
    return settings


def broker_id_of(member_id: str) -> int:
    """Return a member's brokerId while it follows: its number + 1."""
    return member_number(member_id) + 1


def check_group(keys: RaftKeys, name: str) -> None:
    """Raise ConfigError when the keys of a group cannot be used together."""
    settings = group_settings(keys, name)
    if not secret_paths(keys.raftSecretFile) and not all(is_loopback(peer.host) for peer in settings.peers):
        raise ConfigError(
            "raftSecretFile is empty, but some of dLegerPeers are on other machines: name a file with the same secret "
            "on every member (for example made with: openssl rand -hex 32)"
        )
    given = [bool(keys.raftTlsCertFile), bool(keys.raftTlsKeyFile), bool(keys.raftTlsCaFile)]
    if any(given) and not all(given):
        raise ConfigError("raftTlsCertFile, raftTlsKeyFile and raftTlsCaFile are of use together only")


def anybody_is_a_member(keys: RaftKeys) -> bool:
    """Tell whether whoever reaches the port, which is this machine then (check_group), may pass for a member."""
    return not secret_paths(keys.raftSecretFile) and not keys.raftTlsCertFile


def group_warnings(settings: RaftSettings, *, durable: bool, gap: bool = False) -> Iterator[str]:
    """Yield what works, and is probably not meant; `gap`: there is access control, and anybody_is_a_member."""
    if gap:
        yield (
            "access control does not guard the Raft port: every user of this machine may pass for a member there, and "
            "get every message: name a file with the same secret in raftSecretFile of all members"
        )
    members = len(settings.peers)
    if members % 2 == 0:
        yield (
            f"dLegerPeers names {members} members: no more of them may fail than of {members - 1}, and more must "
            "answer; take 3 or 5"
        )
    if not durable:
        yield (
            "flushDiskType=ASYNC_FLUSH in a Raft group: messages are acknowledged before they are on any disk, and a "
            "power cut, of one member even, may lose them; remove the key, or set SYNC_FLUSH on every member"
        )


def moved_members(settings: RaftSettings, config: GroupConfig | None) -> Iterator[str]:
    """Yield a sentence when the group's log knows members at other addresses than dLegerPeers: the log counts (R9)."""
    if config is None:
        return
    named = {peer.id: peer.address for peer in settings.peers}
    moved = [m for m in config.members if named.get(m.id, m.address) != m.address]
    if moved:
        log = ", ".join(f"{member.id} at {member.address}" for member in moved)
        file = ", ".join(f"{member.id} at {named[member.id]}" for member in moved)
        yield (
            f"the group knows {log}, while dLegerPeers says {file}: dLegerPeers counts only until a group has begun."
            " Give the members their old addresses back, or, with a majority at the old ones, move them one at a time"
            " (raftmq cluster remove-peer, then add-peer with an empty store)"
        )


def raft_bind_address(keys: RaftKeys, settings: RaftSettings, bind_address: str) -> str:
    """Return where the port for the other members is opened."""
    if keys.raftBindAddress:
        return keys.raftBindAddress
    local = all(is_loopback(peer.host) for peer in settings.peers)
    return settings.own.host if local else bind_address


def _dial_from(bind_address: str) -> str:
    """Return the address that links come from: the one that the port is bound to, when it is a certain one."""
    try:
        return "" if ipaddress.ip_address(bind_address).is_unspecified else bind_address
    except ValueError:
        return ""


def read_secrets(keys: RaftKeys) -> tuple[bytes, ...]:
    """Return what the files of raftSecretFile hold, () without one; raises ConfigError."""
    return read_secret_files("raftSecretFile", keys.raftSecretFile)


def link_tls(keys: RaftKeys) -> Tls | None:
    """Return what members encrypt with, None without certificates; raises ConfigError.

    Both sides show a certificate of raftTlsCaFile, which names the address in dLegerPeers of whose it is: who dials
    sees to that by TLS, who is dialled once it is known which member came (raft/network/transport.py). Files are read
    again when they change.
    """
    if not keys.raftTlsCertFile:
        return None
    paths = (keys.raftTlsCertFile, keys.raftTlsKeyFile, keys.raftTlsCaFile)

    def make(*, dials: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
        context.check_hostname = dials
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(keys.raftTlsCaFile)
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(keys.raftTlsCertFile, keys.raftTlsKeyFile, password="")
        except OSError as error:
            raise ConfigError(f"raftTlsCertFile, raftTlsKeyFile, raftTlsCaFile: {tls_words(error)}") from error
        return context

    accepting, dialling = (Contexts(partial(make, dials=dials), paths) for dials in (False, True))
    return Tls(ServerTls(accepting, enforcing=True), dialling)


def check_folder(root: Path) -> None:
    """R17: raise ConfigError when a store folder holds messages in the format of DLedger, which is not read here."""
    for folder in sorted(root.glob("dledger-*")):
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"{folder} holds messages in DLedger's own format, which this broker does not read: take them over "
                "with the old brokers first (consume them, or send them on), then move the folder away"
            )
