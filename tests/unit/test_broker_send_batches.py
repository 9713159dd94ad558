"""Batches that go through the broker as columns: what is stored and answered is what one message at a time gives."""

import random
import struct
from typing import Any

import pytest

import broker.messages.send
from broker.messages.send import BATCH_MESSAGES_MAX
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ
from remoting.errors import CommandError
from remoting.record import RecordError, batch_columns, encode_batch, split_batch
from store.recordbatch import RecordBatch
from store.types import PendingRecord
from tests.parts.send_parts import Setting

PLAIN = [(n, b"body %d" % n, b"UNIQ_KEY\x01U%d\x02TAGS\x01a\x02" % n) for n in range(3)]
SENDS = [
    PLAIN,
    [(7, b"", b"")],
    # As RocketMQ's clients end them: without the last separator.
    [(0, b"x", b"UNIQ_KEY\x01U"), (0, b"y", b"")],
    [(0, b"x", b"a\x01\xff\xfe\x02")],
    [(0, b"x", b"A\x01b\x02CLUSTER\x01mine\x02"), (0, b"y", b"A\x01c\x02")],
    [(0, b"x", b"WAIT\x01false\x02A\x01b\x02")],
    [(0, b"x", b"DELAY\x013\x02")],
    [(0, b"x", b"A\x01b\x02TIMER_DELAY_SEC\x013\x02")],
    [(0, b"x", b"p" * 32_767)],
    [(0, b"x", b"CLUSTER\x01\xff\x02")],
]


def outcome(elements: list[tuple[int, bytes, bytes]] | bytes) -> tuple[list[list[Any]], object]:
    """Return the fields of what was stored, and the answer or the refusal."""
    setting = Setting()
    body = elements if isinstance(elements, bytes) else encode_batch(elements)
    try:
        setting.do(by=RequestCode.SEND_BATCH_MESSAGE, body=body)
    except CommandError as error:
        return [], (error.code, str(error))
    setting.log.answers[0](0)
    stored = [[getattr(one, field) for field in PendingRecord.__struct_fields__] for one in setting.log.records]
    return stored, sorted(setting.peer.answers[0].ext.items())


@pytest.mark.parametrize("elements", SENDS)
def test_both_ways_store_and_answer_the_same(
    elements: list[tuple[int, bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_columns = outcome(elements)
    monkeypatch.setattr(broker.messages.send, "_plain_columns", lambda _body: None)
    assert by_columns == outcome(elements)


def test_a_plain_batch_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    setting = Setting()
    monkeypatch.setattr(setting.send, "_append_batch", lambda records, _done, **_when: given.append(records))
    setting.do(by=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch(PLAIN))
    assert [type(records) for records in given] == [RecordBatch]


def test_damaged_batches_get_the_same_verdict_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, dice = encode_batch(PLAIN), random.Random(21)
    damaged = [whole[:size] for size in range(len(whole))]
    for _ in range(400):
        made = bytearray(whole)
        made[dice.randrange(len(made))] = dice.choice([0, 1, 2, 127, 128, 255])
        damaged.append(bytes(made))
    damaged += [whole + bytes(tail) for tail in range(1, 30)]
    by_columns = [outcome(body) for body in damaged]
    monkeypatch.setattr(broker.messages.send, "_plain_columns", lambda _body: None)
    assert by_columns == [outcome(body) for body in damaged]


def test_columns_are_there_exactly_when_all_adds_up() -> None:
    dice = random.Random(4)
    for _ in range(2000):
        body = bytearray(encode_batch(PLAIN[: dice.randint(1, 3)]))
        for _ in range(dice.randint(0, 2)):
            at = dice.randrange(len(body) - 4)
            body[at : at + 4] = struct.pack(">i", dice.choice([-1, 0, 1, 22, 40, 2**31 - 1]))
        try:
            expected = [(flag, bytes(part), properties) for flag, part, properties in split_batch(bytes(body))]
        except RecordError:
            assert batch_columns(bytes(body), BATCH_MESSAGES_MAX) is None
        else:
            columns = batch_columns(bytes(body), BATCH_MESSAGES_MAX)
            assert columns is not None
            assert list(zip(*columns, strict=True)) == expected


def test_no_more_messages_are_taken_apart_than_a_batch_may_have() -> None:
    whole = encode_batch(PLAIN)
    assert batch_columns(whole, len(PLAIN)) is not None
    assert batch_columns(whole, len(PLAIN) - 1) is None


def test_the_answer_is_the_same_from_the_template_and_encoded() -> None:
    answers = []
    for kind in (JSON, ROCKETMQ):
        setting = Setting()
        setting.do(
            by=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch(PLAIN), properties="UNIQ_KEY\x01AB12,C3\x02", kind=kind
        )
        setting.log.answers[0](0)
        (answer,) = setting.peer.answers
        answers.append((answer.code, answer.opaque, sorted(answer.ext.items())))
    assert answers[0] == answers[1]
    ids = dict(answers[0][2])["msgId"].split(",")
    assert [int(one[16:], 16) for one in ids] == [0, 16, 32]
    assert {one[:16] for one in ids} == {"C000020100002A9F"}
