"""A dumb twin of the SQL92 filters: random expressions with what they mean, told the way RocketMQ's Java does it.

`Maker` writes a text by the productions of the grammar and builds, beside it, an object that evaluates itself over
values that carry the name of their Java class. Nothing of broker/filters is used: neither words nor numbers are read by
it, for the maker knows them.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.properties.sql_java import INT, Broken, Java, compare, java_double

Meaning = Callable[[Mapping[str, str]], Java]


class Refused(Exception):
    """RocketMQ throws when it builds such an expression."""


@dataclass(frozen=True)
class Part:
    """What was written, and what it means. `kind`: constant, property, truth (a BooleanExpression) or value."""

    text: str
    kind: str
    meaning: Meaning
    constant: Java = None
    name: str = ""

    @property
    def boolean(self) -> bool:
        """Whether Java's object is a BooleanExpression."""
        null_or_truth = self.kind == "constant" and (self.constant is None or self.constant[0] == "Boolean")
        return self.kind == "truth" or null_or_truth


def equal(left: Meaning, right: Meaning) -> Meaning:
    def evaluate(message: Mapping[str, str]) -> Java:
        one, other = left(message), right(message)
        if (one is None) != (other is None):
            return None if one is None else ("Boolean", False)
        if one is None or other is None or one == other:
            return ("Boolean", True)
        return ("Boolean", compare(one, other) == 0)

    return evaluate


def ordered(left: Part, right: Part, sign: str) -> Part:
    for part in (left, right):
        number = part.kind == "constant" and part.constant is not None and part.constant[0] not in {"String", "Boolean"}
        if part.boolean or (part.kind == "constant" and not number):
            raise Refused

    def evaluate(message: Mapping[str, str]) -> Java:
        one = left.meaning(message)
        if one is None:
            return None
        other = right.meaning(message)
        if other is None:
            return None
        if one[0] == other[0] == "String":
            one, other = ("Double", java_double(one[1])), ("Double", java_double(other[1]))
        answer = compare(one, other)
        return ("Boolean", {">": answer > 0, ">=": answer >= 0, "<": answer < 0, "<=": answer <= 0}[sign])

    return Part("", "truth", evaluate)


def negation(meaning: Meaning) -> Meaning:
    def evaluate(message: Mapping[str, str]) -> Java:
        value = meaning(message)
        return None if value is None else ("Boolean", not value[1])

    return evaluate


def minus(meaning: Meaning) -> Meaning:
    def evaluate(message: Mapping[str, str]) -> Java:
        value = meaning(message)
        return (value[0], -value[1]) if value is not None and value[0] in {"Integer", "Long", "Double"} else None

    return evaluate


def joined(left: Meaning, right: Meaning, decides: bool) -> Meaning:
    """LogicExpression: AND is decided by false, OR by true."""

    def evaluate(message: Mapping[str, str]) -> Java:
        one = left(message)
        if one is not None and one[1] is decides:
            return ("Boolean", decides)
        other = right(message)
        if other is not None and other[1] is decides:
            return ("Boolean", decides)
        return None if one is None or other is None else ("Boolean", not decides)

    return evaluate


def as_truth(part: Part) -> Meaning:
    if part.boolean:
        return part.meaning
    if part.kind != "property":
        raise Refused
    return lambda message: None if part.meaning(message) is None else ("Boolean", False)


def searching(word: str, operand: Meaning, text: str, negated: bool) -> Meaning:
    def evaluate(message: Mapping[str, str]) -> Java:
        if not text:
            return ("Boolean", False)
        value = operand(message)
        if value is None or value[0] != "String":
            return ("Boolean", False)
        at = {"CONTAINS": value[1].find(text) >= 0, "STARTSWITH": value[1][: len(text)] == text}
        at["ENDSWITH"] = value[1][-len(text) :] == text
        return ("Boolean", at[word] != negated)

    return evaluate


NAMES = ("a", "b", "c", "d", "_e", "$f", "TAGS", "A", "Not1")
TEXTS = ("x", "5", "eu", "it's", "", "true", "TRUE", "--", "/*", "é", "1.5", "a=1", "NaN")
VALUES = (
    *TEXTS, "0", "-0", "007", "+5", "-7", "10", "2147483647", "2147483648", "-2147483648", "-2147483649", "5000000000",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e3", " 5", "5 ", "5.0", ".5", "5.", "-0.0",
    "0.0", "1e-400", "1e400", "Infinity", "-Infinity", "+NaN", "1.5f", "2D", "1_0", "0x10", "\u0665", "\uff15",
    "\U0001d7d3", "false", "False", "e5", "1e", "--1", "euro", "neu",
)  # fmt: skip
INTEGERS = ("0", "1", "5", "7", "10", "1000", "2147483647", "2147483648", "5000000000", "9223372036854775807")
FLOATS = ("0.5", "5.", ".5", "1e3", "1.5E0", "10.0", "5.0", "1e-300", "2147483647.0", "1E+2", "4.9e-324")

# Of what is refused.
_REFUSED_SHARE = 0.1


class Maker:
    """Writes expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def message(self) -> dict[str, str]:
        """Return the properties of a message; some are absent, and one whose value is empty counts as absent."""
        draw = self._random
        return {name: draw.choice(VALUES) for name in draw.sample(NAMES, draw.randint(0, len(NAMES)))}

    def expression(self) -> tuple[str, Meaning | None]:
        """Return a text and its meaning, None when RocketMQ refuses it, as it does few of those that are returned."""
        while True:
            text, meaning = self._expression()
            if meaning is not None or self._random.random() < _REFUSED_SHARE:
                return text, meaning

    def _expression(self) -> tuple[str, Meaning | None]:
        state = self._random.getstate()
        text = self._or(self._random.choice((0, 1, 2, 2, 3)), dry=True).text
        self._random.setstate(state)
        try:
            part = self._or(self._random.choice((0, 1, 2, 2, 3)))
            return part.text, as_truth(part)
        except Refused:
            return text, None

    def _gap(self) -> str:
        return self._random.choice((" ", " ", " ", " ", "  ", "\n", "\t", " /* - */ ", " -- x\n", "\r\f"))

    def _word(self, word: str) -> str:
        return self._gap() + self._random.choice((word, word, word.lower(), word.capitalize())) + self._gap()

    def _or(self, depth: int, *, dry: bool = False) -> Part:
        return self._chain(depth, "OR", lambda: self._chain(depth, "AND", lambda: self._equality(depth, dry), dry), dry)

    def _chain(self, depth: int, word: str, one: Callable[[], Part], dry: bool) -> Part:
        left = one()
        for _ in range(self._random.choice((0, 0, 1, 1, 2)) if depth else 0):
            between = self._word(word)
            right = one()
            text = left.text + between + right.text
            if dry:
                left = Part(text, "truth", left.meaning)
            else:
                left = Part(text, "truth", joined(as_truth(left), as_truth(right), word == "OR"))
        return left

    def _equality(self, depth: int, dry: bool) -> Part:
        left = self._relation(depth, dry)
        for _ in range(self._random.choice((0, 0, 1, 1, 1, 2))):
            if self._random.random() < 0.2:
                negated = self._random.random() < 0.5
                words = self._word("IS") + (self._word("NOT") if negated else "") + self._word("NULL")
                null = equal(left.meaning, lambda _message: None)
                left = Part(left.text + words, "truth", negation(null) if negated else null)
                continue
            sign, gap, after = self._random.choice(("=", "=", "<>")), self._gap(), self._gap()
            right = self._relation(depth, dry)
            text = left.text + gap + sign + after + right.text
            if not dry:
                self._check_equal(left, right)
            meaning = equal(left.meaning, right.meaning)
            left = Part(text, "truth", negation(meaning) if sign == "<>" else meaning)
        return left

    @staticmethod
    def _check_equal(left: Part, right: Part) -> None:
        for part in (left, right):
            if part.kind == "constant" and part.constant is None:
                raise Refused
        if left.kind == right.kind == "constant" and left.boolean and not right.boolean:
            raise Refused

    def _relation(self, depth: int, dry: bool) -> Part:
        left = self._unary(depth, dry)
        for _ in range(self._random.choice((0, 0, 1, 1, 1, 1, 2)) if depth else 0):
            left = self._related(left, dry)
        return left

    def _related(self, left: Part, dry: bool) -> Part:
        draw, which = self._random, self._random.random()
        negated = draw.random() < 0.4
        words = left.text + (self._word("NOT") if negated else "")
        if which < 0.5:
            sign, gap, after = draw.choice((">", ">=", "<", "<=")), self._gap(), self._gap()
            right = self._unary(0, dry)
            text = left.text + gap + sign + after + right.text
            return Part(text, "truth", left.meaning if dry else ordered(left, right, sign).meaning)
        if which < 0.65:
            words += self._word("BETWEEN")
            low, between, high = self._unary(0, dry), self._word("AND"), self._unary(0, dry)
            text = words + low.text + between + high.text
            return Part(text, "truth", left.meaning if dry else self._between(left, low, high, negated))
        if which < 0.8:
            texts = [draw.choice(TEXTS) for _ in range(draw.randint(1, 6))]
            text = words + self._word("IN") + "(" + ",".join(self._gap() + quoted(each) for each in texts) + ")"
            if not dry and left.kind != "property":
                raise Refused
            found = left.name

            def is_in(message: Mapping[str, str]) -> Java:
                return None if not message.get(found) else ("Boolean", (message[found] in texts) != negated)

            return Part(text, "truth", is_in)
        word, sought = draw.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")), draw.choice(TEXTS)
        text = words + self._word(word) + quoted(sought)
        return Part(text, "truth", searching(word, left.meaning, sought, negated))

    @staticmethod
    def _between(left: Part, low: Part, high: Part, negated: bool) -> Meaning:
        if negated:
            below, above = ordered(left, low, "<"), ordered(left, high, ">")
            return joined(below.meaning, above.meaning, True)
        if low.kind == high.kind == "constant":
            if low.constant is None or high.constant is None:
                raise Refused
            try:
                if compare(high.constant, low.constant) < 0:
                    raise Refused
            except Broken:
                raise Refused from None
        return joined(ordered(left, low, ">=").meaning, ordered(left, high, "<=").meaning, False)

    def _unary(self, depth: int, dry: bool) -> Part:
        which = self._random.random()
        if which > 0.2:
            return self._primary(depth, dry)
        if which < 0.05:
            gap, operand = self._gap(), self._unary(depth, dry)
            return Part("+" + gap + operand.text, operand.kind, operand.meaning, operand.constant, operand.name)
        if which < 0.12:
            gap, operand = self._gap(), self._unary(depth, dry)
            return Part("-" + gap + operand.text, "value", minus(operand.meaning))
        word, operand = self._word("NOT"), self._unary(depth, dry)
        return Part(word + operand.text, "truth", operand.meaning if dry else negation(as_truth(operand)))

    def _primary(self, depth: int, dry: bool) -> Part:
        draw, which = self._random, self._random.random()
        if depth and which < 0.25:
            inner = self._or(depth - 1, dry=dry)
            return Part(
                f"({self._gap()}{inner.text}{self._gap()})", inner.kind, inner.meaning, inner.constant, inner.name
            )
        if which < 0.65:
            name = draw.choice(NAMES)
            return Part(name, "property", lambda message: ("String", message[name]) if message.get(name) else None,
                        name=name)  # fmt: skip
        if which < 0.8:
            text = draw.choice(INTEGERS)
            kind = "Integer" if int(text) < INT else "Long"
            long = "L" if text != "0" and draw.random() < 0.2 else ""
            return literal(text + long, (kind, int(text)))
        if which < 0.87:
            text = draw.choice(FLOATS)
            return literal(text, ("Double", float(text)))
        if which < 0.94:
            text = draw.choice(TEXTS)
            return literal(quoted(text), ("String", text))
        word, value = draw.choice((("TRUE", True), ("FALSE", False), ("NULL", None)))
        text = draw.choice((word, word.lower()))
        return literal(text, None if value is None else ("Boolean", value))


def literal(text: str, value: Java) -> Part:
    return Part(text, "constant", lambda _message: value, value)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def delivered(meaning: Meaning, message: Mapping[str, str]) -> bool:
    """Tell what RocketMQ's filter says of a message."""
    try:
        return meaning(message) == ("Boolean", True)
    except Broken:
        return False
