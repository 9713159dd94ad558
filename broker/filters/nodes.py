"""What a SQL92 expression is made of: small immutable nodes that the parser makes and the compiler reads.

RocketMQ tells expressions apart by what they surely result in: a truth (comparisons, AND, OR, NOT, IN, TRUE, …), or
something else (a property, a number, a text). Where a truth is wanted a property may stand too.
"""

from typing import NamedTuple

from broker.filters.values import Value


class Constant(NamedTuple):
    """A literal, or NULL (None)."""

    value: Value


class Property(NamedTuple):
    """A property by its name, whose value is a text, or unknown."""

    name: str


class Negated(NamedTuple):
    """A minus sign: of numbers; what is no number becomes unknown."""

    operand: "Node"


class Comparison(NamedTuple):
    """One of = > >= < <=. The sign <> is NOT of =."""

    sign: str
    left: "Node"
    right: "Node"


class IsNull(NamedTuple):
    """Tells whether a value is unknown; never unknown itself."""

    operand: "Node"


class OneOf(NamedTuple):
    """[NOT] IN: whether a property is one of these texts."""

    name: str
    texts: tuple[str, ...]
    negated: bool


class Search(NamedTuple):
    """[NOT] CONTAINS, STARTSWITH, ENDSWITH: false for what is no text, and for an empty search, with NOT too."""

    word: str
    operand: "Node"
    text: str
    negated: bool


class Not(NamedTuple):
    """The opposite; unknown stays unknown."""

    operand: "Node"


class AsTruth(NamedTuple):
    """A property where a truth is wanted: a text is false, whatever it says."""

    operand: "Node"


class Every(NamedTuple):
    """AND of two and more."""

    parts: tuple["Node", ...]


class Some(NamedTuple):
    """OR of two and more."""

    parts: tuple["Node", ...]


Node = Constant | Property | Negated | Comparison | IsNull | OneOf | Search | Not | AsTruth | Every | Some
TRUTHS = (Comparison, IsNull, OneOf, Search, Not, AsTruth, Every, Some)


def is_truth(node: Node) -> bool:
    """Tell whether a node results in true, false or unknown whatever the message is."""
    return isinstance(node, TRUTHS) or (
        isinstance(node, Constant) and (node.value is None or isinstance(node.value, bool))
    )
