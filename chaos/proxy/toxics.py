"""What a toxic may be: its type, stream, toxicity and attributes, as values; and its JSON as Toxiproxy has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Stream = Literal["upstream", "downstream"]
"""Upstream are the bytes of who dialled the proxy, downstream those that come back."""
STREAMS: tuple[Stream, ...] = get_args(Stream)

# Type → its attributes and the least value of each; an attribute that is not given is 0.
ATTRIBUTES: Mapping[str, Mapping[str, int]] = {
    "latency": {"latency": 0, "jitter": 0},  # ms, ± ms
    "bandwidth": {"rate": 0},  # KB/s; 0 lets nothing through
    "slow_close": {"delay": 0},  # ms
    "timeout": {"timeout": 0},  # ms without a byte until the end; 0 never ends the connection
    "reset_peer": {"timeout": 0},  # ms from the first byte
    "slicer": {"average_size": 1, "size_variation": 0, "delay": 0},  # bytes, ± bytes, µs between the slices
    "limit_data": {"bytes": 0},
    "hold": {},
    "loss": {"per_mille": 0, "rto": 0},  # of 1000 pieces, ms until one is sent again for the first time
    "noop": {},
}
# What Shopify's server does not have.
OWN_TYPES = frozenset({"hold", "loss"})
# An hour in ms, 1 GiB: more than any scenario needs, and no sum of them overflows a timer.
VALUE_MAX = 1 << 30


class ToxicError(ValueError):
    """It is no toxic; the text says why and what is allowed."""


@dataclass(frozen=True)
class Toxic:
    """A toxic of a proxy; `toxicity` is the probability that a connection has it."""

    name: str
    type: str
    stream: Stream
    toxicity: float
    attributes: Mapping[str, int]

    def json(self) -> dict[str, Any]:
        """Return it as Toxiproxy writes it."""
        return {
            "attributes": dict(self.attributes),
            "name": self.name,
            "type": self.type,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }


def parse_toxic(fields: Mapping[str, Any]) -> Toxic:
    """Return the toxic that a request describes; raises ToxicError.

    As in Toxiproxy it is downstream with toxicity 1 unless told otherwise, and called TYPE_STREAM.
    """
    kind = fields.get("type", "")
    stream = fields.get("stream", "downstream")
    if stream not in STREAMS:
        raise ToxicError("stream was invalid, can be either upstream or downstream")
    if kind not in ATTRIBUTES:
        raise ToxicError(f"invalid toxic type {kind!r}: there are {', '.join(ATTRIBUTES)}")
    name = fields.get("name") or f"{kind}_{stream}"
    if not isinstance(name, str):
        raise ToxicError(f"the name of a toxic must be a string, not {name!r}")
    attributes = parse_attributes(kind, fields.get("attributes") or {})
    return Toxic(name, kind, stream, parse_toxicity(fields.get("toxicity", 1.0)), attributes)


def changed_toxic(toxic: Toxic, fields: Mapping[str, Any]) -> Toxic:
    """Return the toxic with other attributes or toxicity; what `fields` does not name stays. Raises ToxicError."""
    given = fields.get("attributes") or {}
    if not isinstance(given, Mapping):
        raise ToxicError(f"attributes must be an object, not {given!r}")
    attributes = parse_attributes(toxic.type, {**toxic.attributes, **given})
    toxicity = parse_toxicity(fields.get("toxicity", toxic.toxicity))
    return Toxic(toxic.name, toxic.type, toxic.stream, toxicity, attributes)


def parse_toxicity(value: object) -> float:
    """Return a probability; raises ToxicError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ToxicError(f"toxicity must be a number from 0 to 1, not {value!r}")
    return float(value)


def parse_attributes(kind: str, given: object) -> dict[str, int]:
    """Return all attributes of a type of toxic, checked; raises ToxicError."""
    if not isinstance(given, Mapping):
        raise ToxicError(f"attributes must be an object, not {given!r}")
    known = ATTRIBUTES[kind]
    for name, value in given.items():
        if name not in known:
            raise ToxicError(f"{kind} has no attribute {name!r}: it has {', '.join(known) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int) or value > VALUE_MAX:
            raise ToxicError(f"{name} of {kind} must be a whole number up to {VALUE_MAX}, not {value!r}")
    attributes = {name: int(given.get(name, 0)) for name in known}
    for name, least in known.items():
        if attributes[name] < least:
            raise ToxicError(f"{name} of {kind} must be at least {least}, not {attributes[name]}")
    return attributes
