"""Configuration of a site's members: the keys of broker.conf by mode, and where each has its store."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from chaos.host.local import ROLES, Mode
from chaos.host.security import Security
from chaos.site.netns import OWN_ADDRESS

FILE_BYTES = 16 * 1024 * 1024
# So that a scenario's verdict does not hang on a full disk of the machine that runs it, and files stay small.
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 50_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
    "shutdownForwardMs": 200,
    "slaveReadEnable": True,
    # The final scans read everything through every member.
    **dict.fromkeys(("maxTransferCountOnMessageInMemory", "maxTransferCountOnMessageInDisk"), 512),
    "maxTransferBytesOnMessageInDisk": 256 * 1024,
}
# Of a member in a namespace: where it listens, and what it tells others.
ADDRESS_KEYS = ("bindAddress", "brokerIP1", "httpBindAddress")
# A disk that is full is to be seen by whoever writes: nothing makes room by removing what was acknowledged.
FULL_DISK: Mapping[str, object] = {"cleanFileForciblyEnable": False}
CLASSIC: Mapping[str, object] = {"slaveTimeout": 300, "haSendHeartbeatInterval": 200, "haHousekeepingInterval": 3000}
GROUP = "broker-a"


def group_settings(mode: Mode, name: str, peers: Mapping[str, str]) -> dict[str, object]:
    """Return what makes a member of the group out of a broker; `peers` are where the members know one another."""
    first = next(iter(peers))
    ha_port = int(peers[name].rpartition(":")[2])
    match mode:
        case "raft":
            return {
                "enableDLegerCommitLog": True,
                "dLegerGroup": GROUP,
                "dLegerPeers": ";".join(f"{peer}-{address}" for peer, address in peers.items()),
                "dLegerSelfId": name,
                # Of both kinds: what is acknowledged was synced by a thread here and by the kernel there.
                "kernelSyncEnable": name != first,
            }
        case "single":
            return {**CLASSIC}
        case _ if name == first:
            return {**CLASSIC, "brokerRole": ROLES[mode], "brokerId": 0, "haListenPort": ha_port}
        case _:
            number = list(peers).index(name)
            return {**CLASSIC, "brokerRole": "SLAVE", "brokerId": number, "haListenPort": ha_port}


def secured(security: Security | None, mode: Mode | None = None) -> dict[str, object]:
    """Return the keys of a server that takes signed requests and TLS only, none without `security`.

    `mode`: of a broker in it.
    """
    if security is None:
        return {}
    return security.settings() if mode is None else security.broker_settings(raft=mode == "raft")


def addressed(host: str, secret: Path) -> dict[str, object]:
    """Return the keys of a member in a namespace: to its group it is on another machine, and needs their secret."""
    if not secret.exists():
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text(secrets.token_hex(32), encoding="ascii")
        secret.chmod(0o600)
    allowed = dict.fromkeys(("adminAllowFrom", "httpAllowFrom"), OWN_ADDRESS)
    return {**dict.fromkeys(ADDRESS_KEYS, host), **allowed, "raftSecretFile": str(secret)}


def store_folder(folder: Path, *, own_disk: bool) -> Path:
    """Return where a member's store is: below its own folder, or alone on a file system that is mounted there."""
    return folder / "device" / "store" if own_disk else folder / "store"


def member_names(mode: Mode, nodes: int) -> list[str]:
    """Return what the members are called."""
    match mode:
        case "raft":
            return [f"n{number}" for number in range(nodes)]
        case "single":
            return ["single"]
        case _:
            return ["master", *(f"slave{number}" for number in range(1, nodes))]
