"""admin/queue_locks.py: what 41 and 42 answer, and when."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from broker.admin.queue_locks import QueueLockHandlers
from broker.metadata.agreed_locks import AgreedLocks
from broker.metadata.operations import LocalMeta
from broker.queue_locks import TRUSTED_SECONDS
from raft.protocol.types import Fate
from remoting.bodies.registry import LockBatchBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Reply
from runtime.clock import ManualClock
from tests.parts.broker_parts import Peer
from tests.parts.meta_parts import FakeRole, Member, leader

Q0 = MessageQueue("T", "broker-a", 0)


def ask(handlers: QueueLockHandlers, code: int, client_id: str) -> Reply:
    body = LockBatchBody(clientId=client_id, consumerGroup="G", mqSet=[Q0]).encode()
    return handlers.table()[code](cast("Connection", Peer()), Command(code, body=body))


def queues(answer: Reply) -> list[MessageQueue]:
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SUCCESS
    return LockBatchResponseBody.decode(answer.body).lockOKMQSet


async def asked(member: Member, handlers: QueueLockHandlers, code: int, client_id: str) -> "asyncio.Task[Command]":
    """Ask, and have what that proposes proposed."""
    reply = ask(handlers, code, client_id)
    assert asyncio.iscoroutine(reply)
    task: asyncio.Task[Command] = asyncio.create_task(reply)
    await asyncio.sleep(0)
    member.turn()
    return task


async def test_a_grant_is_answered_when_it_is_agreed_upon(tmp_path: Path) -> None:
    member = leader(tmp_path)
    handlers = QueueLockHandlers(member.locks, member.role, None, shared=True)
    answer = await asked(member, handlers, RequestCode.LOCK_BATCH_MQ, "a")
    await asyncio.sleep(0)
    assert not answer.done()
    member.commit()
    assert queues(await answer) == [Q0]
    assert queues(ask(handlers, RequestCode.LOCK_BATCH_MQ, "a")) == [Q0]
    assert queues(ask(handlers, RequestCode.LOCK_BATCH_MQ, "b")) == []
    gone = await asked(member, handlers, RequestCode.UNLOCK_BATCH_MQ, "a")
    member.commit()
    assert (await gone).code == ResponseCode.SUCCESS
    other = ask(handlers, RequestCode.UNLOCK_BATCH_MQ, "b")
    assert isinstance(other, Command)
    assert other.code == ResponseCode.SUCCESS


async def test_R14_what_is_in_doubt_goes_on_to_whoever_leads(tmp_path: Path) -> None:
    member = leader(tmp_path)
    passed_on: list[Command] = []
    handlers = QueueLockHandlers(
        member.locks, member.role, lambda _connection, request: passed_on.append(request), shared=True
    )
    answer = await asked(member, handlers, RequestCode.LOCK_BATCH_MQ, "a")
    member.proposed.pop()[1](Fate.OVERWRITTEN)
    assert await answer is None
    assert [request.code for request in passed_on] == [RequestCode.LOCK_BATCH_MQ]
    alone = QueueLockHandlers(member.locks, member.role, None, shared=True)
    answer = await asked(member, alone, RequestCode.LOCK_BATCH_MQ, "a")
    member.proposed.pop()[1](Fate.OVERWRITTEN)
    with pytest.raises(CommandError, match="lost the lead"):
        await answer


async def test_R14_who_does_not_know_all_locks_says_so_by_an_error(tmp_path: Path) -> None:
    # An empty grant would be taken for a lock lost to another client.
    clock, role = ManualClock(), FakeRole()
    locks = AgreedLocks(tmp_path / "queueLocks.json", clock, LocalMeta(), fresh=False)
    handlers = QueueLockHandlers(locks, role, None, shared=False)
    with pytest.raises(CommandError, match="does not know all locks"):
        ask(handlers, RequestCode.LOCK_BATCH_MQ, "a")
    clock.advance(TRUSTED_SECONDS)
    reply = ask(handlers, RequestCode.LOCK_BATCH_MQ, "a")
    assert asyncio.iscoroutine(reply)
    assert queues(await reply) == [Q0]
    # The first lead is the one that the file is of; a later one comes after somebody else's.
    role.become(1)
    assert queues(ask(handlers, RequestCode.LOCK_BATCH_MQ, "a")) == [Q0]
    role.become(None)
    role.become(2)
    assert queues(ask(handlers, RequestCode.LOCK_BATCH_MQ, "b")) == []
    await locks.close()


async def test_a_lock_that_cannot_be_written_down_is_not_granted(tmp_path: Path) -> None:
    locks = AgreedLocks(tmp_path / "no folder" / "queueLocks.json", ManualClock(), LocalMeta())
    handlers = QueueLockHandlers(locks, FakeRole(), None, shared=False)
    (tmp_path / "no folder").write_text("a file is in the way")
    reply = ask(handlers, RequestCode.LOCK_BATCH_MQ, "a")
    assert asyncio.iscoroutine(reply)
    with pytest.raises(CommandError, match="cannot be written down"):
        await reply
    (tmp_path / "no folder").unlink()
    await locks.close()
