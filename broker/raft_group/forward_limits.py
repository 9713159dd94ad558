"""Bounds of what a member of a group passes on to its leader."""

from dataclasses import dataclass

from remoting.client import ClientLimits

# The limits of the client that forwards: a leader that was just elected must not be waited for.
CLIENT_LIMITS = ClientLimits(connect_seconds=1.0, backoff_first_seconds=0.02, backoff_max_seconds=0.2)


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Bounds of what a member does for others."""

    # From a request's arrival to its last chance: the 3 s that clients wait by default, less the way back.
    deadline_seconds: float = 2.5
    # Requests under way or waiting, and their bytes. Beyond either: SYSTEM_BUSY.
    requests_max: int = 16_384
    bytes_max: int = 64 * 1024 * 1024
    # Of them all but pulls, at which who sends much waits: more than the leader takes into one entry.
    congested_requests: int = 1024
    # Pulls under way among them; they last as long as they are parked at the leader. Beyond it: PULL_NOT_FOUND.
    pulls_max: int = 10_000
    # How long after a refusal, or a connection that could not be had, the next attempt follows, unless the role
    # changes before: an election takes some hundred milliseconds.
    retry_seconds: float = 0.025
