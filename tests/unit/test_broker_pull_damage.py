"""R18: a pull that meets a damaged record waits until it is mended, or is refused; it never passes over the record."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from broker.messages import pull_damage as pulldamage
from broker.messages.pull_damage import DamagedPulls
from remoting.codes import ResponseCode
from remoting.record import decode_records
from store.messagestore import MessageStore
from store.types import GetResult, GetStatus
from tests.parts.pulling import Setting, pulling
from tests.parts.store_tools import fill


class Rot:
    """Stands between a pull and its store: the record of an offset is damaged until it is mended."""

    def __init__(self, made: Setting, monkeypatch: pytest.MonkeyPatch, hurt: int) -> None:
        self.hurt: int | None = hurt
        self.reads = 0
        get = MessageStore.get

        def damaged(store: MessageStore, topic: str, queue_id: int, offset: int, count: int, *rest: Any) -> GetResult:
            self.reads += 1
            if self.hurt is None:
                return get(store, topic, queue_id, offset, count, *rest)
            if offset < self.hurt:
                return get(store, topic, queue_id, offset, self.hurt - offset, *rest)
            result = GetResult(GetStatus.MESSAGE_DAMAGED, offset, 0, store.max_offset(topic, queue_id))
            result.damaged = 4711
            return result

        monkeypatch.setattr(MessageStore, "get", damaged)
        self.store = made.parts.store


class _Member:
    """A store that has a Raft log."""

    entries = object()


def as_member(made: Setting) -> None:
    store = cast("MessageStore", _Member())
    made.pulls._damaged = DamagedPulls(store, asyncio.get_running_loop(), made.pulls._run_again)


def served(made: Setting) -> list[int]:
    return [message.queue_offset for message in decode_records(made.last.body)]


async def test_R18_one_broker_refuses_and_names_the_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pulling(tmp_path) as made:
        fill(made.parts.store, 5)
        Rot(made, monkeypatch, hurt=2)
        made.pull(0)
        assert (made.last.code, served(made)) == (ResponseCode.SUCCESS, [0, 1])
        made.pull(2, suspend_ms=5000)
        assert made.last.code == ResponseCode.SYSTEM_ERROR
        assert "4711" in (made.last.remark or "")
        assert "offset 2" in (made.last.remark or "")
        assert bytes(made.last.body) == b""


async def test_R18_a_member_answers_once_it_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulldamage, "LOOK_SECONDS", 0.001)
    async with pulling(tmp_path) as made:
        fill(made.parts.store, 5)
        as_member(made)
        rot = Rot(made, monkeypatch, hurt=2)
        made.pull(2)
        while rot.reads < 4:
            await asyncio.sleep(0.001)
        assert made.consumer.answers == []
        rot.hurt = None
        while not made.consumer.answers:
            await asyncio.sleep(0.001)
        assert (made.last.code, served(made)) == (ResponseCode.SUCCESS, [2, 3, 4])


async def test_R18_a_member_that_cannot_mend_refuses_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulldamage, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(pulldamage, "MEND_SECONDS", 0.02)
    async with pulling(tmp_path) as made:
        fill(made.parts.store, 5)
        as_member(made)
        rot = Rot(made, monkeypatch, hurt=2)
        made.pull(2)
        while not made.consumer.answers:
            await asyncio.sleep(0.001)
        assert made.last.code == ResponseCode.SYSTEM_ERROR
        assert "another member" in (made.last.remark or "")
        # Only so many wait at once.
        monkeypatch.setattr(pulldamage, "WAITING_MAX", 0)
        before = rot.reads
        made.pull(2)
        assert rot.reads == before + 1
        assert len(made.consumer.answers) == 2


async def test_R18_who_has_gone_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulldamage, "LOOK_SECONDS", 0.001)
    async with pulling(tmp_path) as made:
        fill(made.parts.store, 5)
        as_member(made)
        rot = Rot(made, monkeypatch, hurt=2)
        made.pull(2)
        made.consumer.closed = True
        waits = made.pulls._damaged
        while waits._waiting:
            await asyncio.sleep(0.001)
        assert rot.reads == 1
        assert made.consumer.answers == []
