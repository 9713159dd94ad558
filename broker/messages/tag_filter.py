"""From a subscription to the set of tag codes that the store lets through.

The ConsumeQueue holds the hash of a message's tag, so the broker filters by hash and the client, who sees the tag
itself, drops the rare message whose tag only has the same hash.
"""

from functools import lru_cache

from remoting.javahash import java_hash

TAG = "TAG"
ALL = "*"
# Characters of an expression: more is an ExpressionError, and a heartbeat with it is refused.
EXPRESSION_CHARS_MAX = 4096
# Parsed expressions that are kept, and how long one may be for it: at most some 20 MiB in all. A consumer sends the
# same one with every pull; a longer one is parsed each time, in a tenth of a millisecond a KiB.
EXPRESSIONS_KEPT = 4096
_KEPT_CHARS_MAX = 256


class ExpressionError(ValueError):
    """A subscription's expression cannot be understood (SUBSCRIPTION_PARSE_FAILED)."""


def is_tag_type(expression_type: str | None) -> bool:
    """Tell whether an expression is one of tags, which is what an absent type means."""
    return not expression_type or expression_type == TAG


def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Return the codes of the tags in "TagA || TagB", None (all) for "*", "" and None; raises ExpressionError."""
    if expression is None or expression in {"", ALL}:
        return None
    if len(expression) <= _KEPT_CHARS_MAX:
        return _kept_codes(expression)
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ExpressionError(f"an expression has at most {EXPRESSION_CHARS_MAX} characters, not {len(expression)}")
    return _codes(expression)


def _codes(expression: str) -> frozenset[int]:
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise ExpressionError(f"{expression!r} names no tag")
    return frozenset(java_hash(tag) for tag in tags)


_kept_codes = lru_cache(maxsize=EXPRESSIONS_KEPT)(_codes)
