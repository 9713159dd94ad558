"""What is suspicious about the address that a broker registers under, and about where it listens."""

import ipaddress
from collections.abc import Iterator

from broker.settings.config import BrokerConfig
from broker.settings.raft_keys import group_settings, raft_bind_address
from runtime.listening import is_loopback

# Networks whose addresses mean nothing on another machine.
_LOCAL_NETWORKS = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_DOCKER_NETWORK = ipaddress.ip_network("172.17.0.0/16")


def listening_warnings(config: BrokerConfig) -> Iterator[str]:
    """Yield what others are told of this broker and cannot reach, since it listens on loopback, as it does by default.

    What reaches it all the same, by a port mapping or a tunnel, is not seen from here.
    """
    remedy = "set bindAddress to that address, or to 0.0.0.0 (SECURITY.md says who may then do what)"
    for key in ("brokerIP1", "brokerIP2"):
        told, bound = getattr(config, key), config.bindAddress
        if told and not is_loopback(told) and is_loopback(bound):
            yield f"{key}={told} is told to others, but only this machine reaches bindAddress={bound}: {remedy}"
    if config.enableDLegerCommitLog:
        settings = group_settings(config, config.group_name())
        host, own = raft_bind_address(config, settings, config.bindAddress), settings.own.host
        if is_loopback(host) and not is_loopback(own):
            yield (
                f"dLegerPeers has this member at {own}, but its port for the others is opened at {host}, which only "
                f"this machine reaches: {remedy}, or raftBindAddress alone"
            )


def address_warnings(address: str, name_servers: tuple[str, ...]) -> list[str]:
    """Return what is suspicious about the address that clients will be told: the most common trap of deployments."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        own = ipaddress.ip_address(host)
    except ValueError:
        return []
    remote = [server for server in name_servers if not _is_local(server.rpartition(":")[0].strip("[]"))]
    if not remote:
        return []
    if any(own in network for network in _LOCAL_NETWORKS):
        text = (
            f"clients are told to find this broker at {address}, which is their own machine, although NameServer "
            f"{remote[0]} is elsewhere: set bindAddress, or with bindAddress=0.0.0.0 brokerIP1, to an address that "
            "they can reach"
        )
        return [text]
    if own in _DOCKER_NETWORK:
        text = (
            f"clients are told to find this broker at {address}, which looks like Docker's internal network: "
            "set brokerIP1 to the host's address, unless all clients run in that network"
        )
        return [text]
    return []


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in _LOCAL_NETWORKS)
