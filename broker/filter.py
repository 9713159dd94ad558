"""From a subscription to the set of tag codes that the store lets through.

The ConsumeQueue holds the hash of a message's tag, so the broker filters by hash and the client, who sees the tag
itself, drops the rare message whose tag only has the same hash.
"""

from functools import lru_cache

from remoting.javahash import java_hash

TAG = "TAG"
ALL = "*"
# Parsed expressions that are kept; a consumer sends the same one with every pull.
EXPRESSIONS_KEPT = 4096


class ExpressionError(ValueError):
    """A subscription's expression cannot be understood (SUBSCRIPTION_PARSE_FAILED)."""


def is_tag_type(expression_type: str | None) -> bool:
    """Tell whether an expression is one of tags, which is what an absent type means."""
    return not expression_type or expression_type == TAG


@lru_cache(maxsize=EXPRESSIONS_KEPT)
def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Return the codes of the tags in "TagA || TagB", None (all) for "*", "" and None; raises ExpressionError."""
    if expression is None or expression in {"", ALL}:
        return None
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise ExpressionError(f"{expression!r} names no tag")
    return frozenset(java_hash(tag) for tag in tags)
