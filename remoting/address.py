"""Addresses as they are written in configuration and routes: "host:port", IPv6 hosts in brackets."""

import ipaddress


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port; ValueError that says what is wrong."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is no address: put an IPv6 host in brackets, as in [::1]:9876")
    if not colon or not host:
        raise ValueError(f"{text!r} is no address: host:port is expected")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535):
        raise ValueError(f"{text!r} is no address: the port must be from 1 to 65535")
    return host, int(port)


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a list separated by semicolons or commas; ValueError when one is none."""
    parts = [part for part in text.replace(",", ";").split(";") if part.strip()]
    return [parse_address(part) for part in parts]


def format_address(host: str, port: int) -> str:
    """Return "host:port", the host in brackets when it is IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_bytes(host: str, port: int) -> bytes:
    """Return BORNHOST as records hold it: the address (4 or 16 bytes) and the port as int32.

    An IPv4 address that came in over an IPv6 socket counts as IPv4; what is no address gives 0.0.0.0.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = ipaddress.IPv4Address(0)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big")
