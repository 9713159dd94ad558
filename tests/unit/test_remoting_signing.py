"""Signatures are HMAC-SHA1 as the standard library makes it, whatever the key, the fields and the body."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import signing
from remoting.signing import SIGNATURE, signature


def by_library(secret_key: str, fields: dict[str, str], body: bytes, empty: str) -> str:
    values = [fields[name] or empty for name in sorted(fields) if name != SIGNATURE]
    content = "".join(values).encode("utf-8", "surrogatepass") + body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


@given(
    secret_key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200),
    fields=st.dictionaries(st.one_of(st.just(SIGNATURE), st.text(max_size=3)), st.text(max_size=5), max_size=6),
    body=st.binary(max_size=100),
    empty=st.sampled_from(["", "null"]),
)
def test_it_is_what_the_library_makes(secret_key: str, fields: dict[str, str], body: bytes, empty: str) -> None:
    expected = by_library(secret_key, fields, body, empty)
    # The second time from what was kept of the first one.
    assert [signature(secret_key, fields, body, empty) for _ in range(2)] == [expected] * 2
    assert signature(secret_key, fields, memoryview(body), empty) == expected


@pytest.mark.parametrize("length", [63, 64, 65, 1024])
def test_keys_up_to_a_block_and_longer(length: int) -> None:
    fields = {"topic": "orders", "AccessKey": "alice"}
    assert signature("k" * length, fields, b"body") == by_library("k" * length, fields, b"body", "")


def test_what_is_kept_of_fields_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_ORDERS_MAX", 8)
    for number in range(100):
        fields = {f"name{number}": "a", "other": "b"}
        assert signature("key", fields, b"") == by_library("key", fields, b"", "")
        assert len(signing._orders) <= 8
