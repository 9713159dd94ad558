"""Requests for what this broker does not have: answered with 3, named in the log, counted.

A client without an answer that it understands may wait for its whole timeout, and what it says then misleads. So
whoever runs the broker must be able to see it here.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from remoting.codes import RequestCode
from remoting.command import ROCKETMQ, Command
from remoting.server import Connection
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# Pairs of client and request that are remembered as told; beyond it the first is forgotten, and told again.
TOLD_MAX = 10_000
# Lines a minute at most, whatever clients come; all are counted.
LINES_PER_MINUTE = 60
OTHER = "other"

_CODES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("POP", (400, 401, *range(200_050, 200_057), 200_151)),
    ("lite topics", tuple(range(200_070, 200_080))),
    ("static topics", (513,)),
    ("controllers", tuple(range(1001, 1019))),
    ("cold data control", tuple(range(2001, 2005))),
    ("ACL 1.0", tuple(range(50, 54))),
)
_FEATURES: Mapping[int, str] = {int(code): feature for feature, codes in _CODES for code in codes}
# The binary header has 16 bits for the code.
_CUT: Mapping[int, int] = {code & 0xFFFF: code for code in _FEATURES if code > 0xFFFF}
_NAMES: Mapping[int, str] = {int(code): code.name for code in RequestCode}


class MissingFeatures:
    """What was asked for in vain. Its size is bounded by TOLD_MAX and by the codes that RocketMQ has."""

    def __init__(self, clock: Clock, client_id: Callable[[Connection], str | None]) -> None:
        """`client_id` names the client of a connection that has sent heartbeats."""
        self._clock = clock
        self._client_id = client_id
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._counts: dict[tuple[str, str], int] = {}
        self._minute = clock.monotonic()
        self._lines = 0

    def asked(self, connection: Connection, request: Command) -> None:
        """Count a request that has no handler, and name it once for each client."""
        code = request.code
        if request.serialize_type == ROCKETMQ and code not in _NAMES:
            code = _CUT.get(code, code)
        feature = _FEATURES.get(code) or _NAMES.get(code, OTHER)
        number = OTHER if feature == OTHER else str(code)
        self._counts[feature, number] = self._counts.get((feature, number), 0) + 1
        client = self._client_id(connection)
        key = (client or connection.peer[0], number)
        if key in self._told:
            return
        if not self._may_tell():
            return
        if len(self._told) >= TOLD_MAX:
            self._told.popitem(last=False)
        self._told[key] = None
        _log.warning(
            "client %s at %s asks for %s (code %d), which this broker does not serve: it is answered with code 3",
            client or "(unknown)",
            connection.address,
            feature,
            code,
        )

    def counts(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Yield how often each was asked for: (feature, code) and the number."""
        yield from self._counts.items()

    def _may_tell(self) -> bool:
        now = self._clock.monotonic()
        if now - self._minute >= 60:
            self._minute, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES_PER_MINUTE
