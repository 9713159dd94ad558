"""What is suspicious about the address that a broker registers under."""

import ipaddress

# Networks whose addresses mean nothing on another machine.
_LOCAL_NETWORKS = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_DOCKER_NETWORK = ipaddress.ip_network("172.17.0.0/16")


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
            f"{remote[0]} is elsewhere: set brokerIP1 to an address that they can reach"
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
