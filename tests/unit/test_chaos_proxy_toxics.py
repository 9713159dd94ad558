"""chaos/proxy/toxics.py: what is a toxic and what is refused, with which words."""

from typing import Any

import pytest

from chaos.proxy.toxics import ATTRIBUTES, ToxicError, changed_toxic, parse_toxic


@pytest.mark.parametrize("kind", [kind for kind in ATTRIBUTES if kind != "slicer"])
def test_defaults(kind: str) -> None:
    toxic = parse_toxic({"type": kind})
    assert (toxic.name, toxic.stream, toxic.toxicity) == (f"{kind}_downstream", "downstream", 1.0)
    assert set(toxic.attributes) == set(ATTRIBUTES[kind])
    assert not any(toxic.attributes.values())
    assert parse_toxic(toxic.json()) == toxic


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "invalid toxic type"),
        ({"type": "latency", "stream": "sideways"}, "upstream or downstream"),
        ({"type": "latency", "attributes": {"delay": 3}}, "it has latency, jitter"),
        ({"type": "hold", "attributes": {"delay": 3}}, "it has none"),
        ({"type": "latency", "attributes": {"latency": -1}}, "at least 0"),
        ({"type": "latency", "attributes": {"latency": 1.5}}, "whole number"),
        ({"type": "latency", "attributes": {"latency": True}}, "whole number"),
        ({"type": "latency", "attributes": {"latency": 1 << 40}}, "up to"),
        ({"type": "latency", "attributes": [1]}, "an object"),
        ({"type": "latency", "toxicity": 1.1}, "from 0 to 1"),
        ({"type": "latency", "toxicity": "1"}, "from 0 to 1"),
        ({"type": "latency", "name": 7}, "must be a string"),
        ({"type": "slicer"}, "average_size of slicer must be at least 1"),
    ],
)
def test_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ToxicError, match=words):
        parse_toxic(fields)


def test_changes_keep_what_they_do_not_name() -> None:
    toxic = parse_toxic({"type": "latency", "attributes": {"latency": 5, "jitter": 2}, "toxicity": 0.5})
    changed = changed_toxic(toxic, {"attributes": {"latency": 9}, "stream": "upstream", "name": "other"})
    assert (changed.attributes, changed.toxicity) == ({"latency": 9, "jitter": 2}, 0.5)
    assert (changed.name, changed.stream) == (toxic.name, toxic.stream)
    assert changed_toxic(toxic, {"toxicity": 1}).toxicity == 1
    with pytest.raises(ToxicError, match="an object"):
        changed_toxic(toxic, {"attributes": 3})
