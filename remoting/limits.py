"""What one process lets another one cost it. Every bound of a connection, with its unit, reason and answer."""

from dataclasses import dataclass

from remoting.codec import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that hold for either side of a connection."""

    # One frame. RocketMQ's peers refuse longer ones too. Beyond it the connection is closed.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Our own requests on one connection that wait for an answer (RocketMQ's semaphores). Beyond it: BacklogFull.
    in_flight_max: int = 65535
    # Handlers of one connection that run as tasks (administration; the data plane needs none). Beyond it: code 2.
    tasks_max: int = 256
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

    # Open connections: each costs a descriptor and some KiB. Beyond it new ones are closed at once.
    connections_max: int = 20_000


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
