"""From the nodes of an expression to a closure over a message's properties: made once, called for each message.

A closure returns True, False or None (unknown), or a value; it raises Mismatch when a comparison cannot be made. Parts
are evaluated from the left, as far as they decide: a Mismatch to the right of what decides never happens.
"""

from collections.abc import Callable, Mapping
from functools import partial

from broker.filters.nodes import (
    AsTruth,
    Comparison,
    Constant,
    Every,
    IsNull,
    Negated,
    Node,
    Not,
    OneOf,
    Property,
    Search,
    Some,
)
from broker.filters.values import Value, Wide, compare, double, int32, int64, order

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
_WANTED: dict[str, tuple[int, ...]] = {"=": (0,), ">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}
_TURNED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def compiled(node: Node) -> Evaluate:
    """Return what evaluates a node."""
    match node:
        case Constant(value):
            return partial(_constant, value)
        case Property(name):
            return partial(_property, name)
        case Comparison():
            return _comparison(node)
        case Every(parts) | Some(parts):
            closures = tuple([compiled(part) for part in parts])
            return partial(_every if isinstance(node, Every) else _some, closures)
        case OneOf(name, texts, negated):
            return partial(_one_of, name, frozenset(texts), negated)
        case Search(word, operand, text, negated):
            # An empty search is false before anything is looked at.
            return partial(_SEARCHES[word], compiled(operand), text, negated) if text else partial(_constant, False)
    return partial(_UNARY[type(node)], compiled(node.operand))


def _comparison(node: Comparison) -> Evaluate:
    """Return what compares; the everyday ones, of a property with a literal, by a shorter way."""
    sign, left, right = node.sign, node.left, node.right
    # Of "=" only the left side's absence leaves the answer unknown.
    missing: bool | None = None
    if isinstance(right, Property) and not isinstance(left, Property):
        left, right, missing = right, left, False if sign == "=" else None
        sign = _TURNED[sign]
    literal = _literal(right)
    if isinstance(left, Property) and isinstance(literal, str):
        return partial(_is_text, left.name, literal, missing)
    if isinstance(left, Property) and isinstance(literal, (int, float)) and not isinstance(literal, bool):
        read = double if isinstance(literal, float) else int64 if isinstance(literal, Wide) else int32
        return partial(_against, left.name, read, literal, _WANTED[sign], missing)
    if node.sign == "=":
        return partial(_equal, compiled(node.left), compiled(node.right))
    return partial(_ordered, compiled(node.left), compiled(node.right), _WANTED[node.sign])


def _literal(node: Node) -> Value:
    """Return what a literal is worth, None when the node is none."""
    if isinstance(node, Constant):
        return node.value
    return _minus(_literal(node.operand)) if isinstance(node, Negated) else None


def _minus(value: Value) -> Value:
    if isinstance(value, (bool, str)) or value is None:
        return None
    return Wide(-value) if isinstance(value, Wide) else -value


def _constant(value: Value, _properties: Properties) -> Value:
    return value


def _property(name: str, properties: Properties) -> Value:
    return properties.get(name)


def _is_text(name: str, text: str, missing: bool | None, properties: Properties) -> Value:
    found = properties.get(name)
    return missing if found is None else found == text


def _against(
    name: str,
    read: Callable[[str], float],
    literal: float,
    wanted: tuple[int, ...],
    missing: bool | None,
    properties: Properties,
) -> Value:
    found = properties.get(name)
    return missing if found is None else order(read(found), literal) in wanted


def _equal(left: Evaluate, right: Evaluate, properties: Properties) -> Value:
    one, other = left(properties), right(properties)
    if one is None:
        return True if other is None else None
    return other is not None and compare(one, other) == 0


def _ordered(left: Evaluate, right: Evaluate, wanted: tuple[int, ...], properties: Properties) -> Value:
    one = left(properties)
    if one is None:
        return None
    other = right(properties)
    if other is None:
        return None
    if isinstance(one, str) and isinstance(other, str):
        return order(double(one), double(other)) in wanted
    return compare(one, other) in wanted


def _one_of(name: str, texts: frozenset[str], negated: bool, properties: Properties) -> Value:
    found = properties.get(name)
    return None if found is None else (found in texts) is not negated


def _contains(operand: Evaluate, text: str, negated: bool, properties: Properties) -> Value:
    found = operand(properties)
    return isinstance(found, str) and (text in found) is not negated


def _starts(operand: Evaluate, text: str, negated: bool, properties: Properties) -> Value:
    found = operand(properties)
    return isinstance(found, str) and found.startswith(text) is not negated


def _ends(operand: Evaluate, text: str, negated: bool, properties: Properties) -> Value:
    found = operand(properties)
    return isinstance(found, str) and found.endswith(text) is not negated


def _negated(operand: Evaluate, properties: Properties) -> Value:
    return _minus(operand(properties))


def _is_null(operand: Evaluate, properties: Properties) -> Value:
    return operand(properties) is None


def _not(operand: Evaluate, properties: Properties) -> Value:
    truth = operand(properties)
    return None if truth is None else not truth


def _as_truth(operand: Evaluate, properties: Properties) -> Value:
    return None if operand(properties) is None else False


def _every(parts: tuple[Evaluate, ...], properties: Properties) -> Value:
    answer: bool | None = True
    for part in parts:
        truth = part(properties)
        if truth is False:
            return False
        if truth is None:
            answer = None
    return answer


def _some(parts: tuple[Evaluate, ...], properties: Properties) -> Value:
    answer: bool | None = False
    for part in parts:
        truth = part(properties)
        if truth is True:
            return True
        if truth is None:
            answer = None
    return answer


_SEARCHES = {"CONTAINS": _contains, "STARTSWITH": _starts, "ENDSWITH": _ends}
_UNARY = {Negated: _negated, IsNull: _is_null, Not: _not, AsTruth: _as_truth}
