"""RocketMQ's grammar of SQL92 expressions, by recursive descent.

::

    expression  = conjunction { OR conjunction }
    conjunction = equality { AND equality }
    equality    = relation { ( "=" | "<>" ) relation | IS [ NOT ] NULL }
    relation    = unary { ( ">" | ">=" | "<" | "<=" ) unary | [ NOT ] BETWEEN unary AND unary
                  | [ NOT ] IN "(" text { "," text } ")" | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) text }
    unary       = ( "+" | "-" | NOT ) unary | literal | property | "(" expression ")"

What RocketMQ finds wrong when it builds an expression is found here too: NULL, a text or a truth where a number must
be, a BETWEEN whose bounds are the wrong way round, 0.0. It stops reading where the grammar ends, so that there
"a = 1 LIKE 'x'" means "a = 1"; here it is an error.
"""

from collections.abc import Callable

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
    is_truth,
)
from broker.filters.tokens import SqlError, Token, WordKind, place, shown, tokens
from broker.filters.values import INT_MAX, LONG_MAX, Wide, compare

# Brackets, NOT and signs within one another; and comparisons in a row, as in "a = b = TRUE". Evaluating takes some
# frames of the stack for each.
DEPTH_MAX = 50
CHAIN_MAX = 4
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_NEGATABLE = ("BETWEEN", "IN", *_SEARCHES)
_ORDERS = (">", ">=", "<", "<=")
_SIGNS = frozenset(("+", "-", "NOT"))
_RELATIONS = frozenset(("NOT", *_NEGATABLE, *_ORDERS))
_EQUALITIES = frozenset(("=", "<>", "IS"))
_TRUTHS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(expression: str) -> Node:
    """Return what an expression says; raises SqlError."""
    return _Parser(expression).whole()


class _Parser:
    """One reading of one expression: a place in the list of its words."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        """Read all of it."""
        token = self._token
        node = self._truth(self._expression_node(), token)
        if self._token.kind is not WordKind.END:
            raise self._unexpected("an operator, AND, OR or the end")
        return node

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> Token | None:
        """Return the next word and go on, if it is one of these keywords or signs."""
        # No name, number or text in quotes reads like a keyword or a sign.
        token = self._tokens[self._at]
        if token.text in texts:
            self._at += 1
            return token
        return None

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise self._unexpected(text)

    def _expression_node(self) -> Node:
        return self._joined("OR", self._conjunction)

    def _conjunction(self) -> Node:
        return self._joined("AND", self._equality)

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        """Read what stands between ORs, or between ANDs."""
        tokens = self._tokens
        token = tokens[self._at]
        node = part()
        if tokens[self._at].text != word:
            return node
        parts = [self._truth(node, token)]
        while tokens[self._at].text == word:
            self._at += 1
            token = tokens[self._at]
            parts.append(self._truth(part(), token))
        return Some(tuple(parts)) if word == "OR" else Every(tuple(parts))

    def _equality(self) -> Node:
        node = self._relation()
        for _ in range(CHAIN_MAX + 1):
            if self._tokens[self._at].text not in _EQUALITIES:
                return node
            if sign := self._take("=", "<>"):
                right = self._relation()
                self._check_equal(node, right, sign)
                node = Comparison("=", node, right)
                node = Not(node) if sign.text == "<>" else node
            else:
                self._need("IS")
                negated = self._take("NOT") is not None
                self._need("NULL")
                node = Not(IsNull(node)) if negated else IsNull(node)
        raise self._too_many()

    def _relation(self) -> Node:
        node = self._unary()
        for _ in range(CHAIN_MAX + 1):
            if self._tokens[self._at].text not in _RELATIONS:
                return node
            if sign := self._take(*_ORDERS):
                node = self._ordered(sign.text, node, self._unary(), sign)
                continue
            negated = self._token.text == "NOT" and self._tokens[self._at + 1].text in _NEGATABLE
            self._at += negated
            if word := self._take("BETWEEN"):
                node = self._between(node, word, negated=negated)
            elif word := self._take("IN"):
                node = self._one_of(node, word, negated=negated)
            elif word := self._take(*_SEARCHES):
                node = Search(word.text, node, self._text(), negated)
            else:
                return node
        raise self._too_many()

    def _between(self, node: Node, word: Token, *, negated: bool) -> Node:
        low = self._unary()
        self._need("AND")
        high = self._unary()
        if negated:
            return Some((self._ordered("<", node, low, word), self._ordered(">", node, high, word)))
        both = Every((self._ordered(">=", node, low, word), self._ordered("<=", node, high, word)))
        if isinstance(low, Constant) and isinstance(high, Constant) and compare(high.value, low.value) < 0:
            raise self._wrong("BETWEEN takes the lower bound first", word)
        return both

    def _one_of(self, node: Node, word: Token, *, negated: bool) -> Node:
        self._need("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
        self._need(")")
        if not isinstance(node, Property):
            raise self._wrong("IN takes a property", word)
        return OneOf(node.name, tuple(texts), negated)

    def _text(self) -> str:
        token = self._token
        if token.kind is not WordKind.TEXT:
            raise self._unexpected("a text in single quotes")
        self._at += 1
        return token.text[1:-1].replace("''", "'")

    def _unary(self) -> Node:
        token = self._tokens[self._at]
        if token.kind is WordKind.NAME:
            self._at += 1
            return Property(token.text)
        if token.text not in _SIGNS:
            return self._primary()
        self._at += 1
        self._deeper(token)
        operand_at = self._token
        node = self._unary()
        self._depth -= 1
        if token.text == "-":
            return Negated(node)
        return Not(self._truth(node, operand_at)) if token.text == "NOT" else node

    def _primary(self) -> Node:
        token = self._token
        if token.kind is WordKind.TEXT:
            return Constant(self._text())
        if self._take("("):
            self._deeper(token)
            node = self._expression_node()
            self._need(")")
            self._depth -= 1
            return node
        if self._take("TRUE", "FALSE", "NULL"):
            return Constant(_TRUTHS[token.text])
        if token.kind not in {WordKind.INTEGER, WordKind.FLOAT}:
            raise self._unexpected("a property, a literal, NOT or (")
        self._at += 1
        return Constant(self._integer(token) if token.kind is WordKind.INTEGER else self._float(token))

    def _integer(self, token: Token) -> int:
        digits = token.text.rstrip("lL")
        # By its length first: Python reads no number of thousands of digits.
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise self._wrong(f"{shown(digits)} is beyond 64 bits", token)
        number = int(digits)
        return number if number <= INT_MAX else Wide(number)

    def _float(self, token: Token) -> float:
        number = float(token.text)
        if number == 0:
            # RocketMQ takes none of those either.
            raise self._wrong(f"{shown(token.text)} is too small for a float; write 0", token)
        if number == float("inf"):
            raise self._wrong(f"{shown(token.text)} is too large for a float", token)
        return number

    def _ordered(self, sign: str, left: Node, right: Node, token: Token) -> Node:
        for node in (left, right):
            if is_truth(node) or (isinstance(node, Constant) and isinstance(node.value, str)):
                raise self._wrong(f"{token.text} compares numbers: neither texts nor truths", token)
        return Comparison(sign, left, right)

    def _check_equal(self, left: Node, right: Node, sign: Token) -> None:
        for node in (left, right):
            if isinstance(node, Constant) and node.value is None:
                raise self._wrong(f"{sign.text} does not take NULL: write IS NULL", sign)
        if isinstance(left, Constant) and isinstance(right, Constant) and is_truth(left) and not is_truth(right):
            raise self._wrong("a truth does not equal a literal of another kind", sign)

    def _truth(self, node: Node, token: Token) -> Node:
        """Return a node where a truth must be; `token` is where it begins."""
        if is_truth(node):
            return node
        if isinstance(node, Property):
            return AsTruth(node)
        raise self._wrong("a comparison or a property is wanted, not a value,", token)

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"more than {DEPTH_MAX} brackets, NOTs and signs within one another", token)

    def _too_many(self) -> SqlError:
        return self._wrong(f"more than {CHAIN_MAX} comparisons in a row: use AND", self._token)

    def _unexpected(self, wanted: str) -> SqlError:
        token = self._token
        if token.kind is WordKind.END:
            return self._wrong(f"the expression ends where {wanted} should be,", token)
        hint = "; there is no LIKE: use CONTAINS, STARTSWITH or ENDSWITH" if token.text.upper() == "LIKE" else ""
        where = place(self._expression, token.at)
        return SqlError(f"unexpected {shown(token.text)!r} {where}: {wanted} should be there{hint}")

    def _wrong(self, what: str, token: Token) -> SqlError:
        return SqlError(f"{what} {place(self._expression, token.at)}")
