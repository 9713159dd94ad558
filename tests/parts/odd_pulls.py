"""Frames as consumers send them, usual pulls and all kinds of others, made by chance."""

import json
from random import Random

from remoting.codec import encode
from remoting.codes import RequestCode
from remoting.command import ROCKETMQ, Command
from tests.parts import odd_sends
from tests.parts.odd_sends import ODD_NUMBERS, framed

TOPICS = ("T", "T", "T", "U")
# A queue has so many messages at most, and a pull asks for so many.
OFFSETS = 60
COUNTS = (1, 2, 5, 32, 32, 32, 2000)
# Suspend, commit, an own subscription; and what else a client may set.
SYS_FLAGS = (4, 4, 4, 5, 6, 7)
ODD_SYS_FLAGS = (0, 1, 2, 12, 20, 8, -1, 1 << 30)
EXPRESSIONS = ("*", "*", "A", "A || B", "C", "")
NUMBERS = (
    "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion",
    "maxMsgBytes",
)  # fmt: skip


def fields_of(dice: Random) -> dict[str, str]:
    """Return the custom fields of a usual pull."""
    fields = {
        "consumerGroup": dice.choice(("G", "G", "G", "H")), "topic": dice.choice(TOPICS),
        "queueId": dice.choice("0001"), "queueOffset": str(dice.randrange(OFFSETS)),
        "maxMsgNums": str(dice.choice(COUNTS)), "sysFlag": str(dice.choice(SYS_FLAGS)),
        "commitOffset": str(dice.randrange(OFFSETS)), "suspendTimeoutMillis": dice.choice(("0", "15000")),
        "subVersion": dice.choice(("0", "1700000000000")), "subscription": dice.choice(EXPRESSIONS),
        "expressionType": "TAG",
    }  # fmt: skip
    if dice.random() < 0.2:
        fields["maxMsgBytes"] = dice.choice(("1", "500", "1048576"))
    if dice.random() < 0.2:
        fields["bname"] = "broker-a"
    for name in ("subscription", "expressionType"):
        if dice.random() < 0.1:
            del fields[name]
    if dice.random() < 0.2:
        shuffled = list(fields.items())
        dice.shuffle(shuffled)
        fields = dict(shuffled)
    return fields


def usual(dice: Random, number: int) -> bytes:
    """Return a pull that the compiled hot path takes."""
    return framed(header_of(dice, number, fields_of(dice)))


def odd(dice: Random, number: int) -> bytes:
    """Return a pull, or something else, with something unusual about it."""
    return dice.choice(_ODD)(dice, number)


def header_of(dice: Random, number: int, fields: dict[str, str], **others: object) -> bytes:
    """Return a header as JSON: a pull's, but for what `others` say."""
    return odd_sends.header_of(dice, number, fields, **{"code": 11, **others})


def _changed(dice: Random, number: int, **changes: str) -> bytes:
    return framed(header_of(dice, number, fields_of(dice) | changes))


def _odd_number(dice: Random, number: int) -> bytes:
    return _changed(dice, number, **{dice.choice(NUMBERS): dice.choice(ODD_NUMBERS)})


def _odd_place(dice: Random, number: int) -> bytes:
    return _changed(
        dice,
        number,
        topic=dice.choice(("T", "Nope", "", "Ü", "T\\", "W", "RAFT_TOPIC")),
        queueId=dice.choice(("0", "3", "4", "-1", "2147483647")),
        queueOffset=dice.choice(("0", "-1", str(OFFSETS), "9223372036854775807")),
        consumerGroup=dice.choice(("G", "H", "New", "Closed", "a b", "")),
    )


def _odd_flags(dice: Random, number: int) -> bytes:
    return _changed(dice, number, sysFlag=str(dice.choice(ODD_SYS_FLAGS)))


def _odd_filter(dice: Random, number: int) -> bytes:
    kind = dice.choice(("TAG", "SQL92", "tag", "", "X"))
    return _changed(dice, number, expressionType=kind, subscription=dice.choice(("||", "a > 1", "A", "TAGS = 'A'")))


def _odd_fields(dice: Random, number: int) -> bytes:
    fields = fields_of(dice)
    name = dice.choice(list(fields))
    match dice.randrange(3):
        case 0:
            del fields[name]
        case 1:
            fields[dice.choice(("requestSource", "proxyFrowardClientId", "ns", "x", ""))] = dice.choice(("1", "c", ""))
        case 2:
            text = json.dumps(fields, separators=(",", ":"))
            twice = f'{text[:-1]},"{name}":{json.dumps(fields[name])}}}'
            return framed(header_of(dice, number, {}).replace(b'"extFields":{}', b'"extFields":' + twice.encode()))
    return framed(header_of(dice, number, fields))


def _odd_json(dice: Random, number: int) -> bytes:
    """Return what a JSON parser takes and a quick one may not, and what neither takes."""
    header = header_of(dice, number, fields_of(dice))
    old, new = dice.choice((
        (b'":', b'" :'), (b",", b", "), (b":11,", b":11.0,"), (b":11,", b':"11",'), (b":11,", b":011,"),
        (b":11,", b":361,"), (b'"flag":0', b'"flag":2'), (b'"flag":0', b'"flag":1'), (b'"flag":0', b'"flag":4'),
        (b'"topic":"T"', b'"topic":null'), (b'"topic":"T"', b'"topic":"\\u0054"'), (b'"topic":"T"', b'"topic":"\xff"'),
        (b'"queueId":"0"', b'"queueId":0'), (b'"opaque":', b'"opaque":-'), (b'"version":493}', b'"version":493}}'),
        (b'"version":493', b'"version":493,"code":10'), (b"{", b"{ "), (b"}", b""), (b'"language"', b'"remark"'),
        (b'"extFields":', b'"extFields":{},"extFields":'), (b"maxMsgNums", b"maxMsgNumz"),
    ))  # fmt: skip
    return framed(header.replace(old, new, 1))


def _other_code(dice: Random, number: int) -> bytes:
    return framed(header_of(dice, number, fields_of(dice), code=dice.choice((361, 999, -11, 0, 11 << 32))))


def _with_body(dice: Random, number: int) -> bytes:
    return framed(header_of(dice, number, fields_of(dice)), b"body")


def _binary(dice: Random, number: int) -> bytes:
    request = Command.request(RequestCode.PULL_MESSAGE, ext=fields_of(dice))
    request.opaque, request.serialize_type = number, ROCKETMQ
    return encode(request)


def _long_header(dice: Random, number: int) -> bytes:
    return _changed(dice, number, subscription=" || ".join(["A"] * dice.choice((100, 150, 300))))


_ODD = (
    _odd_number, _odd_place, _odd_place, _odd_flags, _odd_filter, _odd_fields, _odd_json, _odd_json, _other_code,
    _with_body, _binary, _long_header,
)  # fmt: skip
