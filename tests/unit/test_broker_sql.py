"""broker/filters: RocketMQ's SQL92, a test per rule of its grammar and of how it compares."""

import pytest

from broker.filters.parser import CHAIN_MAX, DEPTH_MAX
from broker.filters.sql import SqlFilter, SqlFilters, readable, sql_filter
from broker.filters.tokens import SQL_CHARS_MAX, SqlError
from remoting.properties import encode_properties
from runtime.quiet import FewLines

MESSAGE = {
    "a": "5",
    "big": "5000000000",
    "price": "10.5",
    "region": "eu",
    "yes": "true",
    "No": "FALSE",
    "quoted": "it's",
    "TAGS": "TagA",
    "_x$1": "1",
    "negative": "-7",
    "padded": " 2.0 ",
    "word": "x1",
    "nan": "NaN",
    "zero": "0.0",
    "minus_zero": "-0.0",
    "plus": "+5",
    "arabic": "\u0665",
    "beyond": "\U0001d7d3",
}

REFUSED = [
    ("", "the expression is empty"),
    (" ", r"ends where a property, a literal, NOT or \( should be, at line 1, column 1"),
    ("a > > 3", r"unexpected '>' at line 1, column 5"),
    ("a >", "ends where a property"),
    ("a =\n  = 3", "unexpected '=' at line 2, column 3"),
    ("a = 5)", "unexpected '\\)' at line 1, column 6"),
    ("(a = 5", "ends where \\) should be"),
    ("a = 5 b = 6", "unexpected 'b' at line 1, column 7"),
    ("a LIKE 'x'", "there is no LIKE: use CONTAINS"),
    ("a == 5", "unexpected '='"),
    ("a != 5", "unequal is <>"),
    ('a = "x"', "single quotes"),
    ("a = 'x", "no closing ' *$|has no closing '"),
    ("a = 5 /* x", "the comment that begins at line 1, column 7 has no"),
    ("a = 5;", "unexpected character ';'"),
    ("a.b = 5", "unexpected character '.'|unexpected '.b'"),
    ("a = 05", "whole numbers do not begin with 0"),
    ("a = 9223372036854775808", "beyond 64 bits"),
    ("a = " + "9" * 4000, "beyond 64 bits"),
    ("a = 1e999", "too large for a float"),
    ("a = 0.0", "too small for a float; write 0"),
    ("a = 1e-999", "too small"),
    ("5", "a comparison or a property is wanted"),
    ("'x'", "a comparison or a property is wanted"),
    ("-a", "a comparison or a property is wanted"),
    ("NOT 5", "a comparison or a property is wanted"),
    ("a AND 5", "a comparison or a property is wanted, not a value, at line 1, column 7"),
    ("a = NULL", "write IS NULL"),
    ("NULL <> a", "write IS NULL"),
    ("TRUE = 5", "does not equal a literal of another kind"),
    ("FALSE = 'x'", "does not equal a literal of another kind"),
    ("a > 'x'", "compares numbers"),
    ("a < TRUE", "compares numbers"),
    ("NULL < 1", "compares numbers"),
    ("a > 1 > 2", "compares numbers"),
    ("a BETWEEN 'a' AND 'b'", "compares numbers"),
    ("a BETWEEN NULL AND 2", "compares numbers"),
    ("a BETWEEN 2 AND 1", "lower bound first"),
    ("a BETWEEN 1.5 AND 1", "lower bound first"),
    ("a BETWEEN 1", "ends where AND should be"),
    ("a IN ()", "a text in single quotes should be there"),
    ("a IN (1)", "a text in single quotes should be there"),
    ("a IN 'x'", "unexpected \"'x'\""),
    ("'a' IN ('x')", "IN takes a property"),
    ("a > 1 IN ('x')", "IN takes a property"),
    ("a CONTAINS b", "a text in single quotes should be there"),
    ("a IS 5", "NULL should be there"),
    ("a NOT = 5", "unexpected 'NOT'"),
    ("contains = 5", "unexpected 'CONTAINS'"),
    ("a = b = c = d = e = f = g", f"more than {CHAIN_MAX} comparisons in a row"),
    ("a" + " CONTAINS 'x'" * 6, f"more than {CHAIN_MAX} comparisons in a row"),
    ("(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX}"),
    ("NOT " * (DEPTH_MAX + 1) + "a", f"more than {DEPTH_MAX}"),
    ("(-" * DEPTH_MAX + "1", f"more than {DEPTH_MAX}"),
    ("a=1 OR " * 2000, f"at most {SQL_CHARS_MAX} characters"),
    ("\x00", "unexpected character"),
    ("größe = 1", "unexpected character 'ö' at line 1, column 3"),
]  # fmt: skip


def matches(expression: str, **properties: str) -> bool:
    return SqlFilter(expression).matches(encode_properties({**MESSAGE, **properties}))


TRUE = [
    # Comparisons with numbers, from both sides.
    "a = 5", "a <> 6", "a > 4", "a >= 5", "a < 6", "a <= 5", "5 = a", "4 < a", "6 > a", "5 <= a", "5 >= a", "4 <> a",
    "a = 5L", "a = 5l", "big = 5000000000", "big > 4999999999", "price = 10.5", "price > 10.", "price < 1.1e1",
    "price > .5", "price > 5E-1", "padded = 2.5E0 OR padded = 2.0E0", "negative = -7", "negative < -6.5",
    "negative > -8", "negative = - 7", "a = +5", "a > -(-4)", "plus = 5", "arabic = 5", "a = 5.0",
    # Texts are equal or not; two properties are compared as numbers.
    "region = 'eu'", "region <> 'us'", "'eu' = region", "quoted = 'it''s'", "a < big", "a <= price", "a = a",
    "padded > _x$1",
    # Truths.
    "yes = TRUE", "No = FALSE", "yes <> FALSE", "a = 5 = TRUE", "(a = 5) = (region = 'eu')", "TRUE", "true",
    # Lists and ranges.
    "region IN ('eu', 'us')", "region IN ('eu')", "region NOT IN ('us')", "(region) in ('eu')", "+region IN ('eu')",
    "a BETWEEN 5 AND 6", "a BETWEEN 4 AND 5", "a NOT BETWEEN 6 AND 7", "5 BETWEEN 1 AND a",
    "price BETWEEN 10.0E0 AND 11.0", "a between 1 and 9 and region = 'eu'",
    # Searches.
    "region CONTAINS 'u'", "region STARTSWITH 'e'", "region ENDSWITH 'u'", "region NOT CONTAINS 'x'",
    "region NOT STARTSWITH 'u'", "region not endswith 'e'",
    # What is not there.
    "gone IS NULL", "region IS NOT NULL", "NULL IS NULL", "gone = gone", "gone IS NULL IS NOT NULL",
    # Three-valued logic.
    "gone = 1 OR a = 5", "a = 5 OR gone = 1", "NOT (gone = 1 AND a = 6)", "NOT region", "5 <> gone", "NOT (5 = gone)",
    # Blanks and comments.
    "\ta\n=\r\f5 ", "a = 5 -- five", "a = 5 -- five\n", "/* a */ a /**/ = /* ** * */ 5", "a=5AND region='eu'",
    # Precedence: NOT, comparisons, AND, OR.
    "a = 5 OR a = 6 AND a = 7", "NOT (a = 6)", "(a = 5 OR a = 6) AND region = 'eu'",
    "TAGS IS NOT NULL AND TAGS IN ('TagA', 'TagB') AND a BETWEEN 3 AND 6",
    # Doubles as Java orders them.
    "nan > 1.5", "nan > 1e308", "zero > minus_zero", "nan >= nan", "zero = 1e-320 OR zero < 1e-320",
]  # fmt: skip
FALSE = [
    "a = 6", "a <> 5", "a > 5", "a < 5", "region = 'us'", "region = 'EU'", "Region = 'eu'", "a = '5.0'",
    # Unknown is not delivered, nor is its opposite.
    "gone = 1", "gone <> 1", "NOT (gone = 1)", "gone > 1", "1 > gone", "gone IN ('x')", "gone NOT IN ('x')",
    "gone BETWEEN 1 AND 2", "gone NOT BETWEEN 1 AND 2", "gone", "NOT gone", "NULL", "NULL AND a = 5", "NULL OR a = 6",
    "5 = gone", "gone IS NOT NULL", "region IS NULL", "5 IS NULL", "TRUE IS NULL", "FALSE",
    # An absent property is no text, with NOT too.
    "gone CONTAINS 'x'", "gone NOT CONTAINS 'x'", "region CONTAINS ''", "region NOT CONTAINS ''",
    "region STARTSWITH ''", "region NOT ENDSWITH ''", "5 CONTAINS '5'", "5 NOT CONTAINS '6'",
    # A property that says true is none: it is a text.
    "yes", "yes AND a = 5",
    # A minus before what is no number is unknown.
    "-region = 1", "- a = -5", "-'x' = 1", "-TRUE = 1", "-(a = 5) = 1",
    # Kinds that never meet.
    "5 = TRUE", "5 = (a = 5)", "(a = 6) = TRUE", "TRUE = -5",
    # A comparison that cannot be made ends it all, unless the rest was decided before.
    "region = 5", "region > 5", "NOT (region = 5)", "region = 5 OR a = 5", "a = 5 AND region <> 1",
    "region > a", "region < quoted", "price = 10", "price > 10", "big = 5", "big > 5", "TRUE = yes", "zero = 0",
    "word BETWEEN 1 AND 2", "a = 5 AND word > 1.5", "beyond = 5", "padded = 2", "-(region = 5) = 1",
]  # fmt: skip


@pytest.mark.parametrize("expression", TRUE)
def test_what_is_delivered(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize("expression", FALSE)
def test_what_is_not_delivered(expression: str) -> None:
    assert not matches(expression)


@pytest.mark.parametrize("expression", ["a = 5 OR region = 5", "region = 'us' AND region = 5 OR a = 5"])
def test_what_is_decided_is_not_evaluated_further(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(("expression", "match"), REFUSED)
def test_what_is_not_of_the_grammar_is_refused_with_its_place(expression: str, match: str) -> None:
    with pytest.raises(SqlError, match=match):
        sql_filter(expression)


def test_the_deepest_and_the_longest_are_evaluated() -> None:
    deep = "(" * DEPTH_MAX + "a = 5" + ")" * DEPTH_MAX
    assert matches(deep)
    assert matches("NOT " * (DEPTH_MAX - 2) + "(a = 5)")
    assert matches("(a = 5 = TRUE = TRUE = " * (DEPTH_MAX - 1) + "TRUE" + ")" * (DEPTH_MAX - 1))
    assert matches(" OR ".join(["a = 6"] * 400) + " OR a=5")
    assert not matches(" AND ".join(["a = 5"] * 400) + " AND a=6")
    assert matches("region IN (" + ",".join(f"'{n}'" for n in range(600)) + ",'eu')")


def test_numbers_beyond_their_bits_match_nothing() -> None:
    assert matches("a > 5", a="2147483647")
    assert not matches("a > 5", a="2147483648")
    assert not matches("a < 5", a="-2147483649")
    assert matches("a < 5", a="-2147483648")
    assert matches("a > 2147483648", a="9223372036854775807")
    assert not matches("a > 2147483648", a="9223372036854775808")
    assert matches("a < -2147483648", a="-9223372036854775808")
    assert not matches("a > 5", a="1" * 5000)


@pytest.mark.parametrize("text", ["1d", "1F", "0x1p0", "0X1.0P+0", "1.", "1e0", "\t1\n", "+1", "1.0"])
def test_doubles_are_read_as_by_java(text: str) -> None:
    assert matches("a < 1.5 AND a > 0.5", a=text)


@pytest.mark.parametrize("text", ["", "x", "1_0", "0x10", "inf", "nan", "1e", ".", "1 0", "--1", "\u0661.\u0660"])
def test_what_is_no_double_for_java_matches_nothing(text: str) -> None:
    assert not matches("a < 1e300 OR a >= 1e300", a=text)


@pytest.mark.parametrize(("text", "sign"), [("Infinity", ">"), ("-Infinity", "<"), ("0x1p9999", ">"), ("1e400", ">")])
def test_doubles_without_end(text: str, sign: str) -> None:
    assert matches(f"a {sign} 1.5", a=text)


def test_what_cannot_be_evaluated_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.filters.sql._few", FewLines(2))
    for expression in ("price > 10", "region = 5", "word < 1.5"):
        made = SqlFilter(expression)
        for _ in range(3):
            assert not made.matches(encode_properties({**MESSAGE, "price": "10.5" + "0" * 100}))
    first, second = (record.getMessage() for record in caplog.records)
    assert "'price > 10' cannot be evaluated over a message with '10.500" in first
    assert len(first) < 300
    assert "'region = 5' cannot be evaluated over a message with 'eu'" in second


def test_properties_are_read_as_by_rocketmq() -> None:
    assert readable(b"a\x011\x02b\x01\x02\x01c\x02d\x02e\x01x\x01y\x02a\x012") == {"a": "2", "e": "x\x01y"}
    assert readable(b"") == {}
    assert SqlFilter("b IS NULL").matches(b"b\x01\x02")
    assert not SqlFilter("b IS NOT NULL").matches(memoryview(b"\xff\xfe\x02\x01"))


def test_a_filter_is_compiled_once_and_kept_within_bounds() -> None:
    filters = SqlFilters(chars_max=30)
    first = filters.get("a = 1")
    assert filters.get("a = 1") is first
    for number in range(2, 7):
        filters.get(f"a = {number}")
        assert filters.get("a = 1") is first, "what is used stays"
    assert len(filters) == 6
    filters.get("a = 7")
    assert len(filters) == 6
    again = filters.get("a = 3")
    assert again is filters.get("a = 3")
    # One that is larger than all that may be kept is made each time.
    large = "a = 1 OR a = 2 OR a = 3 OR a = 4"
    assert filters.get(large) is not filters.get(large)
    assert len(filters) == 6


def test_what_was_wrong_is_kept_too() -> None:
    filters = SqlFilters()
    for _ in range(2):
        with pytest.raises(SqlError, match="column 5"):
            filters.get("a > > 3")
    assert len(filters) == 1
    for nothing in (None, ""):
        with pytest.raises(SqlError, match="empty"):
            filters.get(nothing)
