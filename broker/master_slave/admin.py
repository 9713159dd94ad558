"""What is asked of a broker in a classic mode: 9111, which is ours, and 907, mqadmin's haStatus.

9111 STATUS answers with what /v1/ha shows.
"""

from collections.abc import Callable
from typing import Any

import orjson

from broker.reply import ok
from broker.settings.pair_proof import PairProof
from remoting.bodies.registry import HARuntimeInfo
from remoting.codes import ClassicCode, RequestCode
from remoting.command import Command
from remoting.server import Connection, Handler


class PairHandlers:
    """Handlers of what a master and a slave tell."""

    def __init__(
        self,
        status: Callable[[], dict[str, Any]],
        ha_info: Callable[[], HARuntimeInfo],
        proof: PairProof,
        asked: Callable[[bytes | memoryview, str], None] = lambda _body, _host: None,
    ) -> None:
        """`status` returns all that is known, for people; `ha_info` the part of it that RocketMQ's tools show.

        `asked` is told the body of each question about the state, where slaves say who they are, and its host.
        """
        self._status = status
        self._ha_info = ha_info
        self._proof = proof
        self._asked = asked

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {ClassicCode.STATUS: self.status, RequestCode.GET_BROKER_HA_STATUS: self.ha_status}

    def status(self, connection: Connection, request: Command) -> Command:
        """9111: what this broker knows of its pair, proved to whoever asks with a nonce."""
        self._asked(request.body, connection.peer[0])
        return ok(body=orjson.dumps(self._proof.answer(self._status(), request.body)))

    def ha_status(self, _connection: Connection, _request: Command) -> Command:
        """907: how far the slaves are, or this slave is."""
        return ok(body=self._ha_info().encode())
