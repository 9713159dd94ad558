"""What clients still send to a member that does not lead goes on to the leader, in one hop.

Official clients look at routes every 30 s only, and take an error for a failed send. So a member that follows takes
their requests all the same: it passes them on over one connection to the leader, and the answers back; while no leader
is known they wait for one, and when this member is elected itself, it serves them. Then a leadership transfer or a
rolling restart costs no client an error.

What must hold (rule R8): a request is passed on only while nothing of it is in any log. Once it was written to a
socket it is never sent again: when its answer stays away the client is told that the outcome is unknown. Only a
refusal of the gate on the other side (code 14 with `raftHop`: not appended) or a connection that never came about may
be followed by another attempt. One deadline, fixed where the request first came in, covers waiting, every hop and what
was overwritten (broker/deadlines.py). A request that was forwarded is never forwarded again.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import cast

from broker.deadlines import DatedMember, Deadlines
from broker.leader_only import (
    CLIENT_ID,
    COMMITS,
    HOP,
    HOP_FLAG,
    LEADER_ONLY,
    LEASED,
    SENDS,
    forwarded,
    gated_runs,
    in_clients_name,
    is_undecided,
    refusal,
)
from broker.raft_group.forward_limits import ForwardLimits
from broker.role import BrokerRole
from remoting.audit import ASKED_BY
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import BacklogFull, CommandError, ConnectError, ConnectionLost, FrameError, InvokeError
from remoting.runs import SEND_RUN
from remoting.server import Connection, Handler
from remoting.signing import ACCESS_KEY
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# What a waiting request costs beside its body and header, bytes, about.
_OVERHEAD_BYTES = 1024
_BUSY = "[OVERLOAD]system busy, start flow control for a while"
TOO_LATE = "not done: it came later than its client waits for an answer; try again"
_UNKNOWN = "[RAFT] outcome unknown: the leader's answer did not come ({}); the request may have been done, or not"


_LIMITS = ForwardLimits()


class _Forward:
    """A request on its way. `hold_seconds` is how much longer than the deadline the leader may take to answer."""

    __slots__ = ("bytes", "connection", "deadline", "hold_seconds", "number", "on_failure", "request")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        deadline: float,
        number: int,
        hold_seconds: float,
        on_failure: Callable[[], Command] | None,
    ) -> None:
        self.connection = connection
        self.request = request
        self.deadline = deadline
        self.number = number
        self.hold_seconds = hold_seconds
        self.on_failure = on_failure
        # What it counts towards the bound.
        self.bytes = len(request.body) + request.header_bytes + _OVERHEAD_BYTES

    def __lt__(self, other: "_Forward") -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)

    def end(self, code: int, remark: str) -> None:
        """Answer that it failed: in a pull's own way, or with this code."""
        answer = Command.response(code, remark) if self.on_failure is None else self.on_failure()
        self.connection.reply(self.request, answer)


class Forwarder:
    """Passes requests on to the leader. `address` is this broker's own, "host:port"; must be made inside a loop."""

    def __init__(
        self,
        role: BrokerRole,
        client: RemotingClient,
        address: str = "",
        limits: ForwardLimits = _LIMITS,
        member: DatedMember | None = None,
        name_of: Callable[[Connection], str | None] = lambda _connection: None,
        from_member: Callable[[Connection], bool] = lambda _connection: True,
        asker: Callable[[Command], str] = lambda request: request.ext.get(ACCESS_KEY, ""),
    ) -> None:
        """`client` with CLIENT_LIMITS; `member` is this one.

        `name_of` tells a connection's client, None before its heartbeat; `from_member` whether it is a member's;
        `asker` of which user a request is, "" when that is not proved.
        """
        self._role = role
        self._deadlines = Deadlines(limits.deadline_seconds, member)
        self._now, self.came = self._deadlines.now, self._deadlines.came
        self._name_of, self._from_member, self._asker = name_of, from_member, asker
        self._client = client
        self._address = address
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._table: dict[int, Handler] = {}
        # Not yet written to any socket, by deadline: within one deadline, in the order of arrival.
        self._waiting: list[_Forward] = []
        self._number = 0
        self._count = self._bytes = self._pulls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._asked_at = float("-inf")
        self._connecting: set[str] = set()
        self._tasks = Tasks("forwarder")
        self._closed = False
        self._empty = asyncio.Event()
        role.subscribe(self._role_changed)

    @property
    def pending(self) -> int:
        """Requests that wait for a leader or for its answer."""
        return self._count

    @property
    def congested(self) -> bool:
        """Whether more waits for the leader than it answers soon."""
        return self._count - self._pulls >= self._limits.congested_requests

    @property
    def waiting(self) -> int:
        """Those of them that are not sent yet: no leader is known, or it cannot be reached."""
        return len(self._waiting)

    @property
    def idle_seconds(self) -> float:
        """How long no client has taken this member for the leader; infinite when none ever did."""
        return self._loop.time() - self._asked_at

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with each leader-only handler behind a gate; `table` is the whole one, made once."""
        self._table = table
        return {code: self._gated(code, handler) for code, handler in table.items()}

    def forward(self, connection: Connection, request: Command) -> None:
        """Pass on a request of which nothing is in this log; it is answered later, whatever happens.

        Raises CommandError (SYSTEM_BUSY) at the bounds and HeaderError; a one-way request is dropped there, as ever.
        """
        if is_undecided(request):
            return
        self._take(connection, request, 0.0, None)
        self._pump()

    def forward_lost(self, connection: Connection, request: Command) -> None:
        """Pass on a request that was taken here but not appended, or whose entry was overwritten for good (R8).

        The next attempt is never made within this call: it comes from where a whole turn is being answered.
        """
        try:
            self._take(connection, request, 0.0, None)
        except CommandError as error:
            connection.reply(request, Command.response(error.code, error.remark))
        self._retry_soon()

    def forward_pull(
        self, connection: Connection, request: Command, hold_seconds: float, on_failure: Callable[[], Command]
    ) -> None:
        """Pass on a pull that the leader may park for `hold_seconds`; `on_failure` gives the answer when it cannot."""
        if self._pulls >= self._limits.pulls_max or HOP in request.ext:
            connection.reply(request, on_failure())
            return
        try:
            self._take(connection, request, hold_seconds, on_failure)
        except CommandError:
            connection.reply(request, on_failure())
            return
        self._pump()

    async def drain(self, timeout_seconds: float) -> bool:
        """Return when everything forwarded but pulls is answered; False when that took too long."""
        if self._count > self._pulls:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), timeout_seconds)
            except TimeoutError:
                return False
        return True

    async def close(self) -> None:
        """Forward no more: who still waits is refused. What is under way is answered when the client closes."""
        self._closed = True
        self._deadlines.close()
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None
        await self._tasks.close()
        while self._waiting:
            self._refuse(heapq.heappop(self._waiting), "this broker stops")

    # ---- the gate

    def _gated(self, code: int, handler: Handler) -> Handler:
        role, forward, over, from_member = self._role, self.forward, self._deadlines.over, self._from_member
        if code == SEND_RUN:
            return gated_runs(handler, lambda run: role.leads and not over(run))
        if code not in LEADER_ONLY:
            return handler

        def gated(connection: Connection, request: Command) -> object:
            if role.leads:
                return refusal(TOO_LATE) if over(request) else handler(connection, request)
            return forward(connection, request)

        def gated_read(connection: Connection, request: Command) -> object:
            if role.leads and role.lease():
                return refusal(TOO_LATE) if over(request) else handler(connection, request)
            return forward(connection, request)

        def gated_send(connection: Connection, request: Command) -> object:
            if role.leads:
                if over(request):
                    return refusal(TOO_LATE)
                if request.flag & HOP_FLAG:
                    return in_clients_name(handler, connection, request, role.term, from_member)
                return handler(connection, request)
            return forward(connection, request)

        return cast(Handler, gated_send if code in SENDS else gated_read if code in LEASED else gated)

    # ---- on the way

    def _take(
        self, connection: Connection, request: Command, hold_seconds: float, on_failure: Callable[[], Command] | None
    ) -> None:
        """Put a request among those that wait."""
        if HOP in request.ext:
            connection.reply(request, refusal("this broker does not lead, and forwards nothing twice"))
            return
        if self._closed:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker stops")
        limits = self._limits
        self._number += 1
        self._asked_at = self._loop.time()
        entry = _Forward(connection, request, self._deadlines.of(request), self._number, hold_seconds, on_failure)
        if self._count >= limits.requests_max or self._bytes + entry.bytes > limits.bytes_max:
            raise CommandError(ResponseCode.SYSTEM_BUSY, _BUSY)
        self._count += 1
        self._bytes += entry.bytes
        self._pulls += on_failure is not None
        heapq.heappush(self._waiting, entry)

    def _leave(self, entry: _Forward) -> None:
        self._count -= 1
        self._bytes -= entry.bytes
        self._pulls -= entry.on_failure is not None
        if self._count == self._pulls:
            self._empty.set()

    def _refuse(self, entry: _Forward, why: str) -> None:
        """End a request of which nothing was stored anywhere."""
        self._leave(entry)
        entry.end(ResponseCode.SERVICE_NOT_AVAILABLE, f"[RAFT] not stored: {why}; try again")

    def _role_changed(self) -> None:
        # In the next turn: first everybody else follows the role.
        self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send what waits, as far as there is somebody to send it to; called whenever that may have changed."""
        waiting, unsure = self._waiting, list[_Forward]()
        while waiting:
            if waiting[0].connection.closed:
                self._leave(heapq.heappop(waiting))
            elif waiting[0].deadline <= self._now():
                self._refuse(heapq.heappop(waiting), f"no leader took it within {self._limits.deadline_seconds:g} s")
            elif self._role.leads:
                entry = heapq.heappop(waiting)
                code = entry.request.code
                if code in LEASED and not self._role.lease():
                    unsure.append(entry)
                    continue
                self._leave(entry)
                entry.connection.handle(self._table[code], entry.request)
            else:
                address = self._role.leader_address
                if address is None or address == self._address:
                    break
                target = self._client.connection(address)
                if target is None:
                    self._connect(address)
                    break
                self._send(target, heapq.heappop(waiting))
        for entry in unsure:
            heapq.heappush(waiting, entry)
            self._retry_soon()
        self._arm()

    def _send(self, target: Connection, entry: _Forward) -> None:
        """Write a request to the leader's socket: from here on it is never sent again."""
        request = entry.request
        left = entry.deadline - self._now()
        said = self._deadlines.said(request)
        if request.code in COMMITS and (name := self._name_of(entry.connection)) is not None:
            said[CLIENT_ID] = name
        if user := self._asker(request):
            said[ASKED_BY] = user
        hop = forwarded(request, entry.connection, self._role.term, said)
        try:
            if request.is_oneway:
                target.send_oneway(hop)
                self._leave(entry)
                return
            answer = target.submit(hop, left + entry.hold_seconds)
        except BacklogFull:
            self._leave(entry)
            entry.end(ResponseCode.SYSTEM_BUSY, _BUSY)
        except InvokeError:
            # Closed a moment ago: nothing was written.
            heapq.heappush(self._waiting, entry)
            self._retry_soon()
        except FrameError as error:
            self._leave(entry)
            entry.end(ResponseCode.MESSAGE_ILLEGAL, f"too long to be passed on to the leader: {error}")
        else:
            answer.add_done_callback(lambda done: self._answered(entry, done))

    def _answered(self, entry: _Forward, done: "asyncio.Future[Command]") -> None:
        """Hand the leader's answer back, or send the request again when it may be."""
        error = ConnectionLost("the client is closed") if done.cancelled() else done.exception()
        answer = None if error is not None else done.result()
        if self._may_send_again(answer):
            if self._closed:
                self._refuse(entry, "this broker stops")
            else:
                heapq.heappush(self._waiting, entry)
                self._retry_soon()
            return
        self._leave(entry)
        if answer is None:
            entry.end(ResponseCode.SYSTEM_ERROR, _UNKNOWN.format(error))
        else:
            # Tells a client that knows this field (ours) to look at the route; the others go on as they are.
            answer.raw_ext = {**answer.ext, HOP: "1"}
            entry.connection.reply(entry.request, answer)

    def _may_send_again(self, answer: Command | None) -> bool:
        """Tell whether a request that was written may be written once more; `answer` is None when none came (R8)."""
        return answer is not None and answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and HOP in answer.ext

    # ---- when to try again

    def _connect(self, address: str) -> None:
        if address not in self._connecting and not self._closed:
            self._connecting.add(address)
            self._tasks.spawn(self._connected(address), f"connect to {address}")

    async def _connected(self, address: str) -> None:
        try:
            await self._client.connect(address, self._limits.deadline_seconds)
        except ConnectError as error:
            _log.info("the leader cannot be reached: %s", error)
            self._retry_soon()
        else:
            self._loop.call_soon(self._pump)
        finally:
            self._connecting.discard(address)

    def _retry_soon(self) -> None:
        if self._retry is None and not self._closed:
            self._retry = self._loop.call_later(self._limits.retry_seconds, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._pump()

    def _arm(self) -> None:
        """Set the timer to the first deadline of what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and not self._closed:
            self._timer = self._loop.call_later(max(0.0, self._waiting[0].deadline - self._now()), self._pump)
