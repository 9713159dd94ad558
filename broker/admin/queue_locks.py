"""Locks on queues on the wire: 41 takes and renews them, 42 gives them back.

A grant is answered when it is agreed upon (broker/metadata/agreed_locks.py), a renewal at once. Who asks a leader that
cannot know who holds what is told so by an error and not by an empty grant, which clients would take for a lock lost to
somebody else: with an error they go on consuming for as long as they trust what they have. What a lost lead leaves in
doubt goes on to whoever leads then: asking for a lock twice is asking once.
"""

from broker.messages.send_answers import Elsewhere
from broker.metadata.agreed_locks import AgreedLocks
from broker.queue_locks import TRUSTED_SECONDS
from broker.role import BrokerRole
from remoting.bodies.registry import LockBatchBody, LockBatchResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler, Reply


class QueueLockHandlers:
    """Handlers of queue locks."""

    def __init__(self, locks: AgreedLocks, role: BrokerRole, elsewhere: Elsewhere | None, *, shared: bool) -> None:
        """`elsewhere` takes a request that the lead was lost over; `shared`: the locks are a Raft group's."""
        self._locks = locks
        self._role = role
        self._elsewhere = elsewhere
        self._led = self._leads = role.leads
        if not shared:
            role.subscribe(self._role_changed)

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, connection: Connection, request: Command) -> Reply:
        """Lock queues for an ordered consumer (41); answers those that it now holds."""
        body = LockBatchBody.decode(request.body)
        granted, unsaved = self._locks.lock(body.consumerGroup, body.clientId, body.mqSet)
        if self._locks.unknown(body.consumerGroup, body.mqSet):
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker does not know all locks: it grants more {TRUSTED_SECONDS:g} s after it began",
            )
        answer = Command.response(ResponseCode.SUCCESS, body=LockBatchResponseBody(granted).encode())
        return self._saved(connection, request, answer) if unsaved else answer

    def unlock(self, connection: Connection, request: Command) -> Reply:
        """Unlock queues (42)."""
        body = LockBatchBody.decode(request.body)
        unsaved = self._locks.unlock(body.consumerGroup, body.clientId, body.mqSet)
        answer = Command.response(ResponseCode.SUCCESS)
        return self._saved(connection, request, answer) if unsaved else answer

    async def _saved(self, connection: Connection, request: Command, answer: Command) -> Command | None:
        """Return the answer when what it says is agreed upon; None when another broker gives it."""
        try:
            await self._locks.save()
        except OSError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the lock cannot be written down: {error}") from error
        except CommandError:
            if self._elsewhere is None:
                raise
            self._elsewhere(connection, request)
            return None
        return answer

    def _role_changed(self) -> None:
        """Follow a master that was held back or fenced; a group's leader is told by its log."""
        leads, self._leads = self._leads, self._role.leads
        if self._leads and not leads and self._led:
            self._locks.regained()
        self._led = self._led or self._leads
