"""Frames as producers send them, usual ones and all kinds of others, made by chance."""

import json
import struct
from random import Random

from remoting.codec import encode
from remoting.codes import RequestCode
from remoting.command import ROCKETMQ, Command
from remoting.record import encode_batch

TOPICS = ("T", "T", "T", "U", "V", "A" * 127)
ODD_TOPICS = (
    "",
    "New1",
    "New2",
    "B" * 128,
    "a b",
    "%RETRY%G",
    "SCHEDULE_TOPIC_XXXX",
    "TBW102",
    "Ü",
    "%RETRY%Nobody",
    "T\\",
)
BODY_SIZES = (0, 1, 5, 30, 100, 511, 512, 513)
LARGE_BODIES = (16_383, 16_384, 17_000, 17_001)
NAMES = ("a", "TAG", "TAGSX", "XTAGS", "KEYSX", "UNIQ_KEYS", "WAITS", "TAGS ", "order.id")
VALUES = ("", "v", "TAGS", "KEYS", "UNIQ_KEY", "true", "a b", "0", "x" * 40)
TAGS = ("A", "TagB", "", "zzzzzzzz", "polygenelubricants", "A||B")
KEYS = ("", "k1", "k1 k2", "  k1   k2 ", " ", "k" * 60)
# What the broker must look at, or could take for that.
SPECIAL = (
    "DELAY\x013", "DELAY\x010", "DELAYED\x011", "TIMER_DELAY_MS\x011", "TIMER_DELIVER_MS\x01x", "TRAN_MSG\x01true",
    "TRAN_MSG\x01false", "WAIT\x01false", "WAIT\x01true", "WAIT\x01", "WAIT\x01False", "WAIT\x01truely", "POP_CK\x01x",
    "MSG_REGION\x01x", "TRACE_ON\x01false", "CLUSTER\x01c", "__RMQ.TRANSIENT.a\x01x", "_SYS_MSG_PRIORITY_\x013",
    "__LITE_TOPIC\x01l", "INNER_MULTI_DISPATCH\x01m", "__SHARDINGKEY\x01s", "INNER_NUM\x011", "_\x01_",
)  # fmt: skip
# Bits of the sysFlag: compressed, several tags, transactions, IPv6 hosts, idempotent, codecs.
SYS_FLAGS = (0, 0, 0, 0, 1, 2, 0x100, 0x301)
ODD_SYS_FLAGS = (4, 8, 0xC, 0x10, 0x20, 0x30, 0x40, 0x800, 0x1000, 1 << 30, (1 << 31) - 1, -1)
ODD_NUMBERS = (
    "", "-1", "+1", "01", "00", " 1", "1 ", "1.0", "1e2", "2147483647", "2147483648", "-2147483648", "9" * 18, "9" * 19,
    "9223372036854775807", "9223372036854775808", "1" * 40, "null", "0x1", "٣", "1_0", "-0",
)  # fmt: skip
CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE, RequestCode.HEART_BEAT, 999, 0, -310, 310 << 32)


def usual(dice: Random, number: int, *, calm: bool = False, large: bool = False) -> bytes:
    """Return a send that the compiled hot path takes; `calm`: surely to a queue that there is."""
    fields = _fields(dice, number) | ({"b": dice.choice("TTTV"), "e": dice.choice("001")} if calm else {})
    return framed(header_of(dice, number, fields), _body(dice, large=large))


def odd(dice: Random, number: int) -> bytes:
    """Return a send, or something else, with something unusual about it."""
    return dice.choice(_ODD)(dice, number)


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def properties(dice: Random, number: int) -> str:
    """Return the properties of a usual send."""
    pairs = [f"UNIQ_KEY\x01{dice.choice(('U', '0A', 'z'))}{number}"]
    if dice.random() < 0.7:
        pairs.append(f"TAGS\x01{dice.choice(TAGS)}")
    if dice.random() < 0.5:
        pairs.append(f"KEYS\x01{dice.choice(KEYS)}")
    names = dice.sample(NAMES, dice.choice((0, 0, 1, 3)))
    pairs += [f"{name}\x01{dice.choice(VALUES)}" for name in names]
    dice.shuffle(pairs)
    return "\x02".join(pairs) + dice.choice(("\x02", "\x02", ""))


def _fields(dice: Random, number: int) -> dict[str, str]:
    return {
        "a": "P", "b": dice.choice(TOPICS), "c": "TBW102", "d": "4", "e": str(dice.choice((0, 0, 0, 1, 1, 2, 3))),
        "f": str(dice.choice(SYS_FLAGS)), "g": str(dice.choice((0, 1_700_000_000_000, 10**17))),
        "h": str(dice.choice((0, 7, (1 << 31) - 1))), "i": properties(dice, number), "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip


def header_of(dice: Random, number: int, fields: dict[str, str], **others: object) -> bytes:
    """Return a header as JSON: a send's, but for what `others` say."""
    whole = {
        "code": 310, "extFields": fields, "flag": 0, "language": dice.choice(("JAVA", "GO", "?")), "opaque": number,
        "serializeTypeCurrentRPC": "JSON", "version": 493, **others,
    }  # fmt: skip
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _body(dice: Random, *, large: bool = False) -> bytes:
    return dice.randbytes(dice.choice(LARGE_BODIES if large else BODY_SIZES))


def _changed(dice: Random, number: int, **changes: str) -> bytes:
    return framed(header_of(dice, number, _fields(dice, number) | changes), _body(dice))


def _odd_properties(dice: Random, number: int) -> bytes:
    text = properties(dice, number)
    at = dice.randrange(len(text) + 1)
    piece = dice.choice((
        "\x01", "\x02", "\x02\x02", "\x00", "\x03", "\x7f", "ü", "\ud83d\ude00", '"', "\\", "\n", "\u2028", "\x02a\x02",
        "\x02\x01v\x02", "\x02TAGS\x01B\x02", "\x02UNIQ_KEY\x01B\x02", "\x02KEYS\x01ü k\x02", "\x02UNIQ_KEY\x01a b\x02",
    ))  # fmt: skip
    return _changed(dice, number, i=text[:at] + piece + text[at:])


def _special(dice: Random, number: int) -> bytes:
    text, pair = properties(dice, number), dice.choice(SPECIAL)
    return _changed(dice, number, i=dice.choice((f"{pair}\x02{text}", f"{text}\x02{pair}")).replace("\x02\x02", "\x02"))


def _long_properties(dice: Random, number: int) -> bytes:
    text = properties(dice, number).removesuffix("\x02") + "\x02long\x01"
    # What the broker adds takes 65 bytes with its own names; a byte more or less decides.
    return _changed(dice, number, i=text + "x" * (32_767 - len(text) - dice.choice((0, 1, 2, 64, 65, 66, 67, 68, 200))))


def _odd_number(dice: Random, number: int) -> bytes:
    return _changed(dice, number, **{dice.choice("defghjl"): dice.choice(ODD_NUMBERS)})


def _odd_place(dice: Random, number: int) -> bytes:
    if dice.random() < 0.5:
        return _changed(dice, number, b=dice.choice(ODD_TOPICS), e=dice.choice(("0", "3", "-1")))
    return _changed(dice, number, e=dice.choice(("4", "7", "8", "9", "2147483647", "-1")), b=dice.choice(TOPICS))


def _odd_flags(dice: Random, number: int) -> bytes:
    return _changed(dice, number, f=str(dice.choice(ODD_SYS_FLAGS)))


def _odd_fields(dice: Random, number: int) -> bytes:
    fields = _fields(dice, number)
    match dice.randrange(4):
        case 0:
            del fields[dice.choice(list(fields))]
        case 1:
            name, value = dice.choice(("k", "m", "o", "ab", "A", "n", "l", "")), dice.choice(("true", "", "x", "False"))
            fields[name] = value
        case 2:
            name = dice.choice(list(fields))
            text = json.dumps(fields, separators=(",", ":"))
            twice = f'{text[:-1]},"{name}":{json.dumps(fields[name])}}}'
            return framed(
                header_of(dice, number, {}).replace(b'"extFields":{}', b'"extFields":' + twice.encode()), b"b"
            )
        case 3:
            shuffled = list(fields.items())
            dice.shuffle(shuffled)
            fields = dict(shuffled)
    return framed(header_of(dice, number, fields), b"b")


def _odd_json(dice: Random, number: int) -> bytes:
    """Return what a JSON parser takes and a quick one may not, and what neither takes."""
    header = header_of(dice, number, _fields(dice, number))
    old, new = dice.choice((
        (b'":', b'" :'), (b",", b", "), (b"310", b"310.0"), (b"310", b"3.1e2"), (b"310", b'"310"'), (b"310", b"0310"),
        (b'"flag":0', b'"flag":2'), (b'"flag":0', b'"flag":1'), (b'"flag":0', b'"flag":-0'),
        (b'"flag":0', b'"flag":""'),
        (b'"flag":0', b'"flag":0,"flag":0'), (b'"a":"P"', b'"a":null'), (b'"a":"P"', b'"a":"\\u0050"'),
        (b'"a":"P"', b'"a":"\\ud800"'), (b'"a":"P"', b'"a":"\xff"'), (b'"a":"P"', b'"a":"\xc3\xbc"'),
        (b'"d":"4"', b'"d":4'),
        (b'"version":493', b'"version":2147483648'), (b'"version":493', b'"remark":null'), (b'"language"', b'"x"'),
        (b'"version":493}', b'"version":493} '), (b'"version":493}', b'"version":493}}'), (b"{", b"{ "), (b"}", b""),
        (b'"version":493', b'"version":493,"code":10'), (b'"opaque":', b'"opaque":-'), (b'"opaque"', b'"opaque" '),
        (b"\\u0001", b"\\u0002"), (b"\\u0002", b"\\u0001"), (b"\\u0001", b"\x01"),
        (b'"extFields":', b'"extFields":{},"extFields":'),
        (b"JSON", b"ROCKETMQ"), (b'"opaque":', b'"opaque":1e3,"z":'), (b"UNIQ_KEY", b"\\u0055NIQ_KEY"),
    ))  # fmt: skip
    return framed(header.replace(old, new, 1), b"b")


def _other_code(dice: Random, number: int) -> bytes:
    code = dice.choice(CODES)
    body = encode_batch([(0, b"one", b"TAGS\x01A"), (5, b"two", b"")]) if dice.random() < 0.7 else b"rubbish"
    return framed(header_of(dice, number, _fields(dice, number), code=code), body)


def _oneway(dice: Random, number: int) -> bytes:
    return framed(header_of(dice, number, _fields(dice, number), flag=dice.choice((2, 4, 6))), b"b")


def _binary(dice: Random, number: int) -> bytes:
    request = Command.request(RequestCode.SEND_MESSAGE_V2, ext=_fields(dice, number), body=b"b")
    request.opaque, request.serialize_type = number, ROCKETMQ
    return encode(request)


def _large(dice: Random, number: int) -> bytes:
    return usual(dice, number, large=True)


def _long_header(dice: Random, number: int) -> bytes:
    return _changed(dice, number, a="P" * dice.choice((700, 1023, 1024, 1025, 3000)))


_ODD = (
    _odd_properties, _odd_properties, _special, _special, _long_properties, _odd_number, _odd_place, _odd_flags,
    _odd_fields, _odd_json, _odd_json, _other_code, _oneway, _binary, _large, _long_header,
)  # fmt: skip
