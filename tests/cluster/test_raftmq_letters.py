"""`raftmq group dead-letters` against a real broker: listed, shown, sent again to their group alone, exported."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from client.admin.client import AdminClient
from client.consume.popped import PoppedMessage
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.producer import Producer
from remoting.message import MessageExt
from tests.cluster.test_raftmq_cli import Terminal, terminal

__all__ = ["terminal"]


def consumer_of(namesrv: str, group: str, result: ConsumeResult, came: "asyncio.Queue[MessageExt]") -> PushConsumer:
    async def take(messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            came.put_nowait(message)
        return result

    consumer = PushConsumer(group, namesrv, from_where=ConsumeFrom.FIRST_OFFSET, attempts_max=0)
    consumer.subscribe("Posted")
    consumer.on_message(take)
    return consumer


async def die(namesrv: str, bodies: list[bytes]) -> None:
    """Send messages that the group fails to consume."""
    came: asyncio.Queue[MessageExt] = asyncio.Queue()
    async with Producer("P", namesrv) as producer:
        for body in bodies:
            await producer.send(Message("Posted", body, tags="t", keys=["k"], properties={"colour": "red"}))
    async with consumer_of(namesrv, "failing", ConsumeResult.RECONSUME_LATER, came), asyncio.timeout(30):
        for _ in bodies:
            await came.get()


def test_dead_letters_are_seen_sent_again_and_taken_along(terminal: Terminal, tmp_path: Path) -> None:
    assert "no dead letters" in terminal.text("group", "dead-letters", "list")
    assert "has no dead letters" in terminal.text("group", "dead-letters", "show", "failing")
    asyncio.run(die(terminal.address, [b"one", b"two \xff"]))
    letters = terminal.json("group", "dead-letters", "show", "failing")
    assert {(letter["body"], letter["origin"], letter["tags"], letter["reconsume_times"]) for letter in letters} == {
        ("one", "Posted", "t", 1),
        ("two \\xff", "Posted", "t", 1),
    }
    assert {"group": "failing", "letters": 2} in terminal.json("group", "dead-letters", "list")

    file = tmp_path / "letters.jsonl"
    assert "2 dead letters" in terminal.text("group", "dead-letters", "export", "failing", "--output", str(file))
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert {base64.b64decode(row["body_base64"]) for row in exported} == {b"one", b"two \xff"}
    assert all(row["properties"]["colour"] == "red" for row in exported)
    assert "File exists" in terminal.error("group", "dead-letters", "export", "failing", "--output", str(file))
    assert len(terminal.text("group", "dead-letters", "export", "failing").splitlines()) == 2

    chosen = next(letter["id"] for letter in letters if letter["body"] == "one")
    sent = terminal.json("group", "dead-letters", "resend", "failing", "--id", chosen)
    assert sent == [{"id": chosen, "topic": "Posted"}]
    assert asyncio.run(consumed(terminal.address, 1)) == {b"one"}
    assert len(terminal.json("group", "dead-letters", "show", "failing")) == 2, "they stay"
    terminal.text("group", "dead-letters", "resend", "failing", "--all")
    assert asyncio.run(consumed(terminal.address, 2)) == {b"one", b"two \xff"}


async def consumed(namesrv: str, count: int) -> set[bytes]:
    """Consume as the group that failed; another one gets nothing of it."""
    came: asyncio.Queue[MessageExt] = asyncio.Queue()
    async with consumer_of(namesrv, "failing", ConsumeResult.SUCCESS, came), asyncio.timeout(30):
        messages = [await came.get() for _ in range(count)]
    assert {message.topic for message in messages} == {"Posted"}
    return {bytes(message.body) for message in messages}


def test_what_cannot_be_sent_again_is_said(terminal: Terminal) -> None:
    resend = ("group", "dead-letters", "resend", "nobody")
    assert "takes --id, or --all" in terminal.error(*resend, code=2)
    assert "takes --id, or --all" in terminal.error(*resend, "--all", "--id", "x", code=2)
    assert "has no dead letter x" in terminal.error(*resend, "--id", "x")
    assert "has no dead letters" in terminal.text(*resend, "--all")


@pytest.mark.timeout(60)
def test_a_group_that_pops_gets_its_dead_letters_once_more(terminal: Terminal) -> None:
    terminal.text("group", "create", "popping", "--retries-max", "0")
    asyncio.run(die_popped(terminal.address, b"popped"))
    resend = ("group", "dead-letters", "resend", "popping")
    [letter] = terminal.json("group", "dead-letters", "show", "popping")
    assert terminal.json(*resend, "--all") == [{"id": letter["id"], "topic": "Popped"}]
    # It fails once more, and is a dead letter again; that one is sent again, too.
    assert asyncio.run(popped_again(terminal.address, succeeds=False)) == ("Popped", b"popped")
    letters = terminal.json("group", "dead-letters", "show", "popping")
    assert [each["origin"] for each in letters] == ["Popped", "Popped"]
    newest = max(letters, key=lambda each: int(each["reconsume_times"]))
    terminal.json(*resend, "--id", newest["offset_id"])
    assert asyncio.run(popped_again(terminal.address, succeeds=True)) == ("Popped", b"popped")


def popper(namesrv: str) -> SimpleConsumer:
    consumer = SimpleConsumer("popping", namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("Popped")
    return consumer


async def die_popped(namesrv: str, body: bytes) -> None:
    async with Producer("P", namesrv) as producer:
        await producer.send(Message("Popped", body, tags="t"))
    async with asyncio.timeout(40), popper(namesrv) as consumer, AdminClient(namesrv) as admin:
        await fail(consumer, admin, await receive_one(consumer), kept=1)


async def popped_again(namesrv: str, *, succeeds: bool) -> tuple[str, bytes]:
    async with asyncio.timeout(40), popper(namesrv) as consumer, AdminClient(namesrv) as admin:
        message = await receive_one(consumer)
        if succeeds:
            await message.ack()
        else:
            await fail(consumer, admin, message, kept=2)
        return message.topic, bytes(message.body)


async def receive_one(consumer: SimpleConsumer) -> PoppedMessage:
    while not (taken := await consumer.receive(wait=5)):
        pass
    [message] = taken
    return message


async def fail(consumer: SimpleConsumer, admin: AdminClient, message: PoppedMessage, kept: int) -> None:
    """Have a message become a dead letter."""
    await message.nak()
    while (await admin.dead_letter_groups()).get("popping") != kept:
        assert await consumer.receive(wait=0.2) == []
