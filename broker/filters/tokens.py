"""The words of a SQL92 expression, each with its place. One pass over the text, which never goes back."""

import re
from enum import StrEnum
from typing import NamedTuple

# Whoever wants more than so many characters is refused, as with tags: they are read in the loop, in up to a millisecond
# per KiB.
SQL_CHARS_MAX = 4096
_SHOWN_CHARS = 40

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
_BLANKS = " \t\n\r\f"
# Comments are left out like blanks; one that ends with the text needs no end of line. Of numbers the longest kind is
# tried first.
_WORD = re.compile(
    r"""[ \t\n\r\f]*(?:
    (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<sign> <> | <= | >= | [<>=(),+] | -(?!-) )
  | (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> (?: 0 | [1-9][0-9]*[lL]? )(?![0-9]) )
  | (?P<text> '[^']*(?:''[^']*)*' )
  | (?P<comment> --[^\n\r]* | /\*.*?\*/ )
    )""",
    re.VERBOSE | re.DOTALL,
)


class SqlError(ValueError):
    """An expression is not of the grammar, or beyond a limit; the text says what is wrong and where."""


class WordKind(StrEnum):
    """What a word is; keywords and signs are told apart by their text."""

    NAME = "name"
    FLOAT = "float"
    INTEGER = "integer"
    TEXT = "text"
    SIGN = "sign"
    KEYWORD = "keyword"
    END = "end"


_KINDS = {kind.value: kind for kind in WordKind}


class Token(NamedTuple):
    """A word: its kind, its text (keywords in capitals), and where it begins in the expression."""

    kind: WordKind
    text: str
    at: int


def tokens(expression: str) -> list[Token]:
    """Return an expression's words, an END last; raises SqlError."""
    if len(expression) > SQL_CHARS_MAX:
        raise SqlError(f"an expression has at most {SQL_CHARS_MAX} characters, not {len(expression)}")
    found = []
    read = _WORD.match
    at, end = 0, len(expression.rstrip(_BLANKS))
    while at < end:
        match = read(expression, at, end)
        if match is None:
            raise SqlError(_unreadable(expression, at))
        name = match.lastgroup or ""
        begin, at = match.span(name)
        text = match[name]
        if name == "name" and (upper := text.upper()) in KEYWORDS:
            found.append(Token(WordKind.KEYWORD, upper, begin))
        elif name != "comment":
            found.append(Token(_KINDS[name], text, begin))
    found.append(Token(WordKind.END, "", end))
    return found


def place(expression: str, at: int) -> str:
    """Say where a position is, as people count."""
    line = expression.count("\n", 0, at) + 1
    begin = expression.rfind("\n", 0, at)
    return f"at line {line}, column {at - begin}"


def shown(text: str) -> str:
    """Return a word as an error quotes it."""
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def _unreadable(expression: str, at: int) -> str:
    at += len(expression) - at - len(expression[at:].lstrip(_BLANKS))
    where = place(expression, at)
    if expression.startswith("'", at):
        return f"the text that begins {where} has no closing '"
    if expression.startswith("/*", at):
        return f"the comment that begins {where} has no */"
    hint = {
        "!": "; unequal is <>",
        '"': "; texts stand between single quotes",
        "0": "; whole numbers do not begin with 0",
    }.get(expression[at], "")
    return f"unexpected character {expression[at]!r} {where}{hint}"
