"""`raftmq group dead-letters` against a real broker: listed, shown, sent again to their group alone, exported."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from client.admin.client import AdminClient
from client.api import BrokerApi
from client.consume.popped import PoppedMessage
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.producer import Producer
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.errors import ConnectError
from remoting.message import MessageExt
from tests.cluster.test_raftmq_cli import Terminal, terminal

__all__ = ["terminal"]


def consumer_of(
    namesrv: str, group: str, result: ConsumeResult, came: "asyncio.Queue[MessageExt]", topic: str = "Posted"
) -> PushConsumer:
    async def take(messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            came.put_nowait(message)
        return result

    consumer = PushConsumer(group, namesrv, from_where=ConsumeFrom.FIRST_OFFSET, attempts_max=0)
    consumer.subscribe(topic)
    consumer.on_message(take)
    return consumer


async def die(namesrv: str, bodies: list[bytes], group: str = "failing", topic: str = "Posted") -> None:
    """Send messages that the group fails to consume, one after the other."""
    came: asyncio.Queue[MessageExt] = asyncio.Queue()
    failing = consumer_of(namesrv, group, ConsumeResult.RECONSUME_LATER, came, topic)
    async with Producer("P", namesrv) as producer, AdminClient(namesrv) as admin, asyncio.timeout(30):
        await producer.send(Message(topic, bodies[0], tags="t", keys=["k"], properties={"colour": "red"}))
        async with failing:
            for number, body in enumerate(bodies):
                if number:
                    await producer.send(Message(topic, body, tags="t", keys=["k"], properties={"colour": "red"}))
                await came.get()
                while (await admin.dead_letter_groups()).get(group, 0) <= number:
                    await asyncio.sleep(0.02)


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


def test_many_are_found_by_id_and_sent_again_in_parts(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(die(terminal.address, [b"0", b"1", b"2"], "many", "Many"))
    resend, show = ("group", "dead-letters", "resend", "many"), ("group", "dead-letters", "show", "many")
    letters = terminal.json(*show)
    ids = [letter["id"] for letter in letters]
    # Whatever is shown, those that are named are found, and all are all.
    for name in ("id", "offset_id"):
        named = (*show, "--limit", "1", "--id", letters[1][name], "--id", letters[2][name])
        assert [letter["id"] for letter in terminal.json(*named)] == ids[1:]
    assert [letter["id"] for letter in terminal.json(*show, "--limit", "1")] == ids[:1]
    assert [letter["id"] for letter in terminal.json(*show, "--since", letters[2]["stored"])] == ids[2:]
    done = terminal.done(*resend, "--all", "--limit", "1", "--json")
    assert [row["id"] for row in json.loads(done.stdout)] == ids[:1]
    assert f"--since {letters[1]['stored']}" in done.stderr
    assert [row["id"] for row in terminal.json(*resend, "--all", "--since", letters[1]["stored"])] == ids[1:]

    # What was sent when one cannot be is told, and how to go on.
    send_back = BrokerApi.send_back

    async def second_fails(*arguments: Any) -> None:
        if arguments[3].msg_id == ids[1]:
            raise ConnectError("no connection to it")
        await send_back(*arguments)

    monkeypatch.setattr(BrokerApi, "send_back", second_fails)
    done = terminal.done(*resend, "--all", "--json", code=1)
    assert [row["id"] for row in json.loads(done.stdout)] == ids[:1]
    assert "no connection to it" in done.stderr
    assert f"1 dead letters were sent again, `--since {letters[1]['stored']}`" in done.stderr


def test_a_group_without_retries_is_told_that_nothing_would_be_sent(terminal: Terminal) -> None:
    asyncio.run(die(terminal.address, [b"x"], "unretried", "Unretried"))

    async def change(queues: int) -> None:
        async with AdminClient(terminal.address) as admin:
            await admin.create_group(SubscriptionGroupConfig("unretried", retryQueueNums=queues))

    asyncio.run(change(0))
    assert "retryQueueNums=0" in terminal.error("group", "dead-letters", "resend", "unretried", "--all")
    asyncio.run(change(1))
    assert len(terminal.json("group", "dead-letters", "resend", "unretried", "--all")) == 1


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
