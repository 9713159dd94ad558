"""What one process lets another one cost it. Every bound of a connection, with its unit, reason and answer."""

import logging
from dataclasses import dataclass, replace

from remoting.codec import FRAME_BYTES_MAX
from runtime.descriptors import connections_possible

# Fewer than these are said loudly at the start.
FEW_CONNECTIONS = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that hold for either side of a connection."""

    # One frame. RocketMQ's peers refuse longer ones too. Beyond it the connection is closed.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Our own requests on one connection that wait for an answer (RocketMQ's semaphores). Beyond it: BacklogFull.
    in_flight_max: int = 65535
    # Handlers of one connection that run as tasks (administration; the data plane needs none). Beyond it: code 2.
    tasks_max: int = 256
    # Headers and bodies of the requests that such tasks of all connections hold. Beyond it: code 2.
    task_bytes_max: int = 64 * 1024 * 1024
    # Unsent output of one connection at which reading from it pauses (server) until it has sunk to the low mark: who
    # does not read its answers may ask for no more. Some large pulls must fit below.
    output_high_bytes: int = 4 * 1024 * 1024
    output_low_bytes: int = 1024 * 1024
    # Unsent output that parked answers may still pile up while reading pauses. Beyond it: the server closes the
    # connection, the client answers BacklogFull.
    output_bytes_max: int = 64 * 1024 * 1024
    # Silence in both directions after which a connection is closed, as RocketMQ does on both sides.
    idle_seconds: float = 120.0
    # How long a closing side waits for peers to take what is still to be sent to them.
    close_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class ServerLimits(ConnectionLimits):
    """Bounds of a server."""

    # Open connections: each costs a descriptor and some KiB. Beyond it new ones are closed at once. Fewer where the
    # system does not allow so many open files, see server_limits().
    connections_max: int = 20_000
    # Open connections of one address (of IPv6: of its network of 64 bits), loopback not counted: nobody takes them all,
    # and some thousand clients behind one gateway find room. Beyond it new ones are closed at once. See
    # connectionsPerAddressMax; where there are few connections it is a quarter of them.
    connections_per_address_max: int = 4096
    # Bytes kept of frames that are not whole yet, of all connections of a process together, and how long one has to
    # become whole (RocketMQ's clients wait 3 to 30 s for an answer). Beyond it: who has most, or took longer, is
    # closed.
    unfinished_bytes_max: int = 128 * 1024 * 1024
    unfinished_seconds: float = 30.0


# The part of a port's connections that one address may have where nothing is configured.
_ADDRESS_PART = 4


def server_limits(idle_seconds: float, ports: int = 1, per_address: int = 0) -> ServerLimits:
    """Return the bounds of each of a process's servers, with as many connections as it may have descriptors for.

    `per_address` is how many of them one address may have, 0: the usual. Raises the soft limit of open files as far as
    they need it.
    """
    limits = ServerLimits(idle_seconds=idle_seconds)
    possible = connections_possible(ports * limits.connections_max) // ports
    if possible < limits.connections_max:
        level = logging.WARNING if possible < FEW_CONNECTIONS else logging.INFO
        _log.log(level, "up to %d connections on a port: that is what the limit of open files allows", possible)
    usual = min(limits.connections_per_address_max, max(possible // _ADDRESS_PART, 1))
    return replace(limits, connections_max=possible, connections_per_address_max=per_address or usual)


@dataclass(frozen=True, slots=True)
class ClientLimits(ConnectionLimits):
    """Bounds of a client."""

    # Peers connected to at once: brokers and NameServers. Beyond it: ConnectError.
    connections_max: int = 4096
    # How long a connection may take to come about.
    connect_seconds: float = 3.0
    # How long the next attempt waits after one failure, doubled for each further one up to the second figure:
    # a broker that is started again is back within a second or two, and an attempt a second costs nobody anything.
    backoff_first_seconds: float = 0.05
    backoff_max_seconds: float = 1.0
