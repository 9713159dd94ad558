"""auth/known_sends.py: a send like one before is read, taken and refused as one of which nothing is known."""

from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import auth.known_sends
from auth.known_sends import KIND_LENGTH_MAX, SendKind
from auth.model import Action, Decision, PolicyType, User, entry, resource_of
from auth.quota_keys import QuotaKeys
from auth.quotas import BROKER_COUNTS, QuotaGuard
from remoting.codec import decode_parts, decode_signed_parts
from remoting.command import JSON, Command
from remoting.connection import Connection
from remoting.errors import HeaderError
from remoting.headers.base import Header
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.headers.signed import SignedSend
from remoting.signing import ACCESS_KEY, SECURITY_TOKEN, Credentials
from tests.parts.guarded_sends import (
    ALICE,
    BODY,
    SEND,
    USUAL,
    GuardLink,
    GuardLoop,
    GuardSite,
    is_taken,
    outcome,
    signed,
    warm,
    written,
)

# ---- what is known is taken the short way


def test_the_like_of_a_send_is_taken_by_its_signature_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = warm(written(signed(USUAL)))
    monkeypatch.setattr(site.guard, "_known", None)  # the long way fails from here on
    monkeypatch.setattr(site.guard, "_looked_at", None)
    other = signed({**USUAL, "e": "1023", "g": "1795379984249", "i": "KEYS\x01é\x02"}, b"other")
    for link in (site.link, GuardLink()):
        taken = site.asked(written(other), memoryview(b"other"), link)
        assert taken is not None
        assert taken.raw_ext is None, "no map was made"
        header = taken.typed_header
        assert type(header) is SendMessageRequestHeaderV2
        assert (header.topic, header.queueId, header.bornTimestamp) == ("orders", 1023, 1795379984249)
        assert (header.properties, header.maxReconsumeTimes) == ("KEYS\x01é\x02", 16)


@pytest.mark.parametrize("token", ["", "a-token"])
def test_what_was_taken_has_no_proof_any_more(token: str) -> None:
    header = written(signed({**USUAL, SECURITY_TOKEN: token} if token else USUAL))
    site = GuardSite()
    for _ in range(3):
        taken = site.asked(header)
        assert taken is not None
        assert taken.user == "alice"
        assert taken.ext == {**USUAL, ACCESS_KEY: "alice"}


def test_a_large_body_is_verified_too() -> None:
    body = bytes(5000)
    header = written(signed(USUAL, body))
    site = warm(header, body)
    assert site.asked(header, memoryview(body)) is not None
    assert site.asked(header, memoryview(body[:-1] + b"\x01")) is None


# ---- the short way and the long one agree

_text = st.text(st.characters(codec="utf-8"), max_size=6)
_odd = st.sampled_from(["", "0", "7", "07", "+7", "7.0", "1e2", " 7", "-1", "1024", "٣", "null", "true", "True", "1"])
_values = st.one_of(_odd, _text, st.sampled_from(list(USUAL.values())))
_names = st.sampled_from([*USUAL, "n", SECURITY_TOKEN, "raftHop", "o", "ns", "Z", "_UNIQUE_KEY_QUERY"])
_changes = st.dictionaries(_names, _values, max_size=4)


@settings(max_examples=150, deadline=None)
@given(first=_changes, second=_changes, order=st.randoms(use_true_random=False), left_out=st.sets(_names, max_size=2),
       forged=st.booleans(), version=st.sampled_from([399, 500]), times=st.sampled_from([2, 6]))  # fmt: skip
def test_a_site_that_knows_the_like_decides_as_one_that_knows_nothing(
    first: dict[str, str],
    second: dict[str, str],
    order: Any,
    left_out: set[str],
    forged: bool,
    version: int,
    times: int,
) -> None:
    topics = {"b": "orders1"}
    before = written(signed({**USUAL, **first, **topics}), version=version)
    site = GuardSite()
    for _ in range(times):
        outcome(site, before, BODY)
    fields = {name: value for name, value in {**USUAL, **first, **second, **topics}.items() if name not in left_out}
    ready = list(signed(fields, who=Credentials("alice", "guessed") if forged else ALICE).items())
    order.shuffle(ready)
    after = written(dict(ready), version=version)
    known = outcome(site, after, BODY)
    assert known == outcome(GuardSite(), after, BODY)
    assert (known[0] == "taken") <= (not forged)
    assert outcome(site, before, BODY) == outcome(GuardSite(), before, BODY)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_refused(data: st.DataObject) -> None:
    """Of the values and the body; what it is elsewhere, it is for a site that knows nothing, too."""
    fields = signed(USUAL)
    header = written(fields)
    site = warm(header)
    whole = header + BODY
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    new_header, body = bytes(changed[: len(header)]), bytes(changed[len(header) :])
    found: tuple[object, ...]
    try:
        new_header.decode()
    except UnicodeDecodeError:
        # What is skipped unread need not be UTF-8, and shows when the map of strings is made.
        found = ("taken" if is_taken(site, new_header, body) else "refused",)
        assert found[0] == ("taken" if is_taken(GuardSite(), new_header, body) else "refused")
    else:
        found = outcome(site, new_header, body)
        assert found == outcome(GuardSite(), new_header, body)
    if found[0] == "taken":
        # Names are not signed, as in RocketMQ, nor is what stands beside the fields: then all texts are the same.
        ext = decode_signed_parts(JSON, new_header, body).ext
        assert sorted(ext.values()) == sorted(fields.values())
        assert body == BODY


def test_every_changed_byte_of_values_and_body_is_refused() -> None:
    fields = signed({**USUAL, "i": "KEYS"})
    header = written(fields)
    site = warm(header)
    for value in fields.values():
        begin = header.index(b'"%b"' % value.encode()) + 1
        for at in range(begin, begin + len(value)):
            changed = bytearray(header)
            changed[at] ^= 1
            assert site.asked(bytes(changed)) is None, (value, at)
    for at in range(len(BODY)):
        assert site.asked(header, BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]) is None
    assert site.asked(header) is not None


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":310,"opaque":7,"extFields":%b,"extFields":%b}',
        b'{"code":310,"opaque":7,"extFields":{"b":"mine"},"extFields":%b}',
        b'{"code":310,"code":11,"opaque":7,"extFields":%b}',
        b'{"opaque":7,"extFields":%b,"code":310}',
        b' {"code" : 310, "opaque" : 7, "extFields" : %b}\n',
        b'{"code":310,"opaque":7,"extFields":%b}x',
    ],
)
def test_headers_that_nobody_writes_are_read_as_ever(header: bytes) -> None:
    fields = orjson.dumps(signed(USUAL))
    made = header.replace(b"%b", fields)
    assert outcome(warm(written(signed(USUAL))), made, BODY) == outcome(GuardSite(), made, BODY)
    twice = fields[:-1] + b',"b":"mine"}'
    made = header.replace(b"%b", twice)
    assert outcome(warm(written(signed(USUAL))), made, BODY) == outcome(GuardSite(), made, BODY)


# ---- nothing is known for longer than it holds


def test_a_change_of_users_or_policies_holds_at_once() -> None:
    header = written(signed(USUAL))
    site = warm(header)
    site.allow(topic="Topic:others")
    assert site.asked(header) is None
    site.allow()
    assert site.asked(header) is not None
    site.allow(secret="new")
    assert site.asked(header) is None
    site.allow(off=True)
    assert site.asked(header) is None
    site.allow()
    for _ in range(2):
        assert site.asked(header) is not None


def test_what_is_known_is_of_one_address() -> None:
    header = written(signed(USUAL))
    site = GuardSite()
    found = resource_of("Topic:orders")
    assert found is not None
    allowed = entry(found, [Action.PUB], Decision.ALLOW, ["192.0.2.0/24"])
    site.directory.take({"alice": User("alice", ALICE.secret_key)}, {"alice": {PolicyType.CUSTOM: (allowed,)}})
    for _ in range(2):
        assert site.asked(header) is not None
        assert site.asked(header, link=GuardLink("198.51.100.1")) is None


def test_a_stateful_proof_is_one_connections_and_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    site = GuardSite(authenticationStrategy="StatefulAuthenticationStrategy")
    good, forged = written(signed(USUAL)), written(signed(USUAL, who=Credentials("alice", "guessed")))
    assert site.asked(forged) is None
    for _ in range(2):
        assert site.asked(good) is not None
    assert site.asked(forged) is not None
    other = GuardLink()
    assert site.asked(forged, link=other) is None
    assert site.asked(good, link=other) is not None
    assert site.asked(forged, link=other) is not None
    monkeypatch.setattr(GuardLoop, "now", 61.0)
    assert site.asked(forged) is None
    site.allow()
    assert site.asked(forged, link=other) is None


def test_a_user_of_two_keys_is_looked_at_each_time() -> None:
    site = GuardSite()
    inner = Credentials("inner", "inner-secret")
    header = written(signed(USUAL, who=inner))
    for _ in range(2):
        assert site.asked(header) is not None
    assert len(site.guard._sends) == 1
    site.directory.take({"inner": User("inner", "new-secret")}, {})
    for _ in range(2):
        assert site.asked(header) is not None
        assert site.asked(written(signed(USUAL, who=Credentials("inner", "new-secret")))) is not None
        assert site.guard._sends.kind(cast(Connection, site.link), _texts(header), site.directory.changes) is None


def _texts(header: bytes) -> SignedSend:
    read: Header | None = decode_signed_parts(JSON, header, BODY).typed_header
    assert isinstance(read, SignedSend)
    return read


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth.known_sends, "KINDS_MAX", 3)
    site = GuardSite()
    for last in range(10):
        assert site.asked(written(signed({**USUAL, "b": f"orders{last}"}))) is not None
    assert len(site.guard._sends) == 3
    kinds: list[SendKind] = list(site.guard._sends._kinds.values())
    assert [kind.said[0] for kind in kinds] == ["orders7", "orders8", "orders9"]
    site = GuardSite()
    long = written(signed({**USUAL, "a": "p" * KIND_LENGTH_MAX}))
    for _ in range(3):
        assert site.asked(long) is not None
    assert len(site.guard._sends) == 0


# ---- beside the guard


def test_a_server_that_asks_for_no_signature_reads_a_signed_send_as_any_other() -> None:
    for decode, read in ((decode_parts, SendMessageRequestHeaderV2), (decode_signed_parts, SignedSend)):
        request = decode(JSON, written(signed(USUAL)), BODY)
        assert type(request.typed_header) is read
        header = request.header(SendMessageRequestHeaderV2)
        assert request.header(SendMessageRequestHeaderV2) is header
        assert header == Command.request(SEND, ext=USUAL).header(SendMessageRequestHeaderV2)
        assert request.ext == signed(USUAL)
        missing = decode(JSON, written(signed({**USUAL, "d": "many"})), BODY)
        with pytest.raises(HeaderError, match="the custom field <d> is not an integer"):
            missing.header(SendMessageRequestHeaderV2)


def test_quotas_count_a_known_send_for_its_user() -> None:
    header = written(signed(USUAL))
    site = warm(header)
    taken = site.asked(header)
    assert taken is not None
    seen: list[str] = []

    class Quotas(QuotaGuard):
        def _caller(self, connection: Connection, request: Command, user: str) -> Any:
            seen.append(user)
            return super()._caller(connection, request, user)

    quotas = Quotas(QuotaKeys(), BROKER_COUNTS, lambda: 0.0, site.directory)
    quotas.limited({SEND: lambda _connection, _request: None})[SEND](cast(Connection, site.link), taken)
    assert seen == ["alice"]
    assert taken.raw_ext is None
