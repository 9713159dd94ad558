"""Who may administer: the addresses whose requests for a change are taken (`adminAllowFrom`); who may ask HTTP.

Judged by the address of the connection, never by what a request says of itself. What is sent in a client's name by
another member of its Raft group (broker/leader_only.py) was judged by the member that the client asked; so its address
is the member's, and members are among those that are known.
"""

import ipaddress
from collections.abc import Callable, Collection
from typing import Protocol

KEY = "adminAllowFrom"
HTTP_KEY = "httpAllowFrom"
EVERYBODY = "*"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ANYWHERE: tuple[Network, ...] = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))
# Bits in front of the IPv4 address in an IPv6 one that stands for it (::ffff:a.b.c.d).
_MAPPED_BITS = 96


class AskingPeer(Protocol):
    """What is needed of a connection."""

    @property
    def peer(self) -> tuple[str, int]:
        """Where it comes from."""
        ...

    @property
    def own_host(self) -> str:
        """The address of this machine that it came to."""
        ...


def _nobody() -> Collection[str]:
    return ()


class Admission:
    """Tells whose requests for a change are taken."""

    def __init__(self, allowed: str = "", members: Callable[[], Collection[str]] = _nobody) -> None:
        """Take the key as it is written, empty for this machine; `members` gives the addresses that always count.

        Raises ValueError for what parse_networks refuses.
        """
        self._networks = parse_networks(allowed)
        self._machine = not self._networks
        self._members = members

    def refusal(self, caller: AskingPeer) -> str | None:
        """Return why a change is not taken from there, None when it is."""
        host = caller.peer[0]
        address = address_of(host)
        if address is not None and self._admits(address, caller):
            return None
        named = "it is not set: this machine only" if self._machine else "this one is not among them"
        return (
            f"{host} may change nothing here: {KEY} of this server names the addresses from which administrative "
            f"requests are taken ({named})"
        )

    def _admits(self, address: IpAddress, caller: AskingPeer) -> bool:
        if self._machine:
            # Nobody else's packets come from the address that they go to.
            if address.is_loopback or address == address_of(caller.own_host):
                return True
        elif any(address in network for network in self._networks):
            return True
        return comes_from(caller, self._members())


def http_judge(allowed: str, *, guarded: bool) -> Callable[[str, str], str | None]:
    """Return what tells why an address may not ask HTTP at one of this machine's, None when it may (`httpAllowFrom`).

    The machine itself always may. Of the others with an empty key all may, or where every request elsewhere is signed
    (`guarded`), none. Raises ValueError for what parse_networks refuses.
    """
    networks = parse_networks(allowed) or (() if guarded else _ANYWHERE)
    named = "this one is not among them" if allowed.strip() else "it is not set: with access control, this machine only"

    def judge(host: str, own: str) -> str | None:
        address = address_of(host)
        if address is not None and (
            address.is_loopback or address == address_of(own) or any(address in network for network in networks)
        ):
            return None
        return f"{host} may not ask here: {HTTP_KEY} of this server names the addresses that HTTP answers ({named})"

    return judge


def comes_from(caller: AskingPeer, hosts: Collection[str]) -> bool:
    """Tell whether a connection comes from one of some addresses; names are not looked up."""
    address = address_of(caller.peer[0])
    return address is not None and any(address == address_of(host) for host in hosts)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a list of addresses and networks with commas between them, () for an empty text.

    Raises ValueError, which says what is wrong with which part.
    """
    if not text.strip():
        return ()
    networks: list[Network] = []
    for part in (each.strip() for each in text.split(",")):
        networks.extend(_ANYWHERE if part == EVERYBODY else [_network(part)])
    return tuple(networks)


def check_networks(text: str, key: str = KEY) -> None:
    """Raise ValueError, one sentence for a person who wrote it at a key of a file, for what cannot be used."""
    try:
        parse_networks(text)
    except ValueError as error:
        raise ValueError(
            f"{key}={text}: it takes addresses and networks with commas between them, such as 10.0.0.5,192.168.0.0/16, "
            f"or {EVERYBODY} for everybody: {error}"
        ) from None


def _network(part: str) -> Network:
    if not part:
        raise ValueError("a part is empty")
    network = ipaddress.ip_network(part)
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


def address_of(host: str) -> IpAddress | None:
    """Return the address that a host is, as IPv4 where it stands for one; None for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
