"""remoting/repeated.py behind a guard: a send that is the last one's like is compared with it, to the same outcome."""

import orjson
import pytest

from auth.known_sends import _IN_A_ROW
from remoting.codec import decode_signed_parts
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.repeated import HEADER_BYTES_MAX
from remoting.signing import ACCESS_KEY, Credentials
from tests.parts.guarded_sends import ALICE, BODY, USUAL, GuardLink, GuardSite, outcome, signed, warm, written


def test_the_like_of_the_last_sends_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = written(signed(USUAL))
    site = warm(usual)
    monkeypatch.setattr(site.guard._sends, "kind", None)  # what decoded sends take
    for queue, text, opaque in (("0", "KEYS\x01l\x02WAIT\x01true\x02", 1), ("9", "KEYS\x01\x02k\x02WAIT\x01true", 9)):
        header = written(signed({**USUAL, "e": queue, "g": "1795379984249", "i": text}), opaque=opaque)
        assert len(header) == len(usual)
        taken = site.asked(header)
        assert taken is not None
        assert (taken.opaque, taken.user, taken.raw_ext, taken.raw_header) == (opaque, "alice", None, header)
        typed = taken.typed_header
        assert type(typed) is SendMessageRequestHeaderV2
        assert (typed.queueId, typed.bornTimestamp, typed.properties) == (int(queue), 1795379984249, text)
        assert taken.ext == {**USUAL, "e": queue, "g": "1795379984249", "i": text, ACCESS_KEY: "alice"}


def test_sends_of_other_lengths_come_in_between_and_anew() -> None:
    site = warm(written(signed(USUAL)))
    first = site.link.decode
    longer = [written(signed({**USUAL, "i": f"KEYS\x01{number}-{number}\x02"})) for number in range(10, 20)]
    for number, header in enumerate(longer):
        assert site.asked(header) is not None
        assert (site.link.decode is first) == (number < _IN_A_ROW - 1)
        assert site.asked(written(signed({**USUAL, "e": "1000"}, BODY)), link=GuardLink()) is not None


@pytest.mark.parametrize(
    "change", [{"i": "KEYS\x01k\x02WAIT\x01fals\x02"}, {"e": "a"}, {"g": "179537998424x"}, {"b": "orderx"}, {"e": "/"}]
)
def test_what_differs_otherwise_is_looked_at_as_ever(change: dict[str, str]) -> None:
    for who in (ALICE, Credentials("alice", "guessed")):
        header = written(signed({**USUAL, **change}, who=who))
        assert outcome(warm(written(signed(USUAL))), header, BODY) == outcome(GuardSite(), header, BODY)
    refused = warm(written(signed(USUAL)))
    assert refused.asked(header) is None
    assert refused.asked(written(signed(USUAL))) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"opaque":7', b'"opaque":07'),
        (b'"opaque":7', b'"opaque":-7'),
        (b'"opaque":7', b'"opaque":x'),
        (b"=", b'"'),
        (b"=", b"\\"),
        (b"=", b"\xc3"),
        (b"k\\u0002", b'k"u0002'),
        (b"k\\u0002", b"k\\x0002"),
        (b"k\\u0002", b"k\nu0002"),
    ],
)
def test_a_header_that_only_looks_like_it_is_none_as_ever(old: bytes, new: bytes) -> None:
    usual = written(signed(USUAL), opaque=7 if len(old) == len(new) else 77)
    site = warm(usual)
    header = usual.replace(old if len(old) == len(new) else b'"opaque":77', new, 1)
    assert header != usual
    assert len(header) == len(usual)
    assert outcome(site, header, BODY) == outcome(GuardSite(), header, BODY)
    assert outcome(site, usual, BODY) == outcome(GuardSite(), usual, BODY)


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":310,"e":"3","opaque":7,"extFields":%b}',
        b'{"code":310,"opaque":7,"opaque":7,"extFields":%b}',
        b'{"code":310,"opaque":7,"\\u0065":"3","extFields":%b}',
        b'{"code":310,"opaque":7,"x\\"e":"3","extFields":%b}',
        b'{"code":310,"opaque":0,"extFields":%b}',
        b'{"code":310,"opaque":1000000000,"extFields":%b}',
        b'{"code":310,"opaque":7,"x":"' + bytes(b"x" * HEADER_BYTES_MAX) + b'","extFields":%b}',
    ],
)
def test_of_an_odd_header_nothing_is_told_at_sight(header: bytes) -> None:
    made = header.replace(b"%b", orjson.dumps(signed(USUAL)))
    site = GuardSite()
    for _ in range(_IN_A_ROW + 2):
        assert outcome(site, made, BODY) == outcome(GuardSite(), made, BODY)
    assert site.link.decode is decode_signed_parts
