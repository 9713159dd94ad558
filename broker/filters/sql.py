"""SQL92 filters, compiled and kept: what a subscription's text lets through of messages, by their properties."""

import logging
from collections import OrderedDict

from broker.filters.compiler import Evaluate, compiled
from broker.filters.parser import parse
from broker.filters.tokens import SqlError, shown
from broker.filters.values import Mismatch
from runtime.quiet import FewLines

_log = logging.getLogger(__name__)

SQL92 = "SQL92"
# Characters of all expressions that are kept compiled; the one that was used last stays longest. Compiled they take up
# to a hundred bytes a character.
KEPT_CHARS_MAX = 256 * 1024
# Each filter says once that it met a message which it cannot be evaluated over; all together so often in ten seconds.
_few = FewLines(10)


class SqlFilter:
    """One expression, compiled. Equal texts give the same object while it is kept."""

    __slots__ = ("_evaluate", "_told", "expression")

    def __init__(self, expression: str) -> None:
        """Compile it; raises SqlError."""
        self.expression = expression
        self._evaluate: Evaluate = compiled(parse(expression))
        self._told = False

    def matches(self, properties: bytes | memoryview) -> bool:
        """Tell whether a message with these encoded properties is let through."""
        try:
            return self._evaluate(readable(properties)) is True
        except Mismatch as why:
            if not self._told and _few.let():
                self._told = True
                _log.warning(
                    "the filter %r cannot be evaluated over a message with %r, and such messages are not delivered: "
                    "compare texts with texts, whole numbers with 10, others with 10.0",
                    shown(self.expression),
                    shown(str(why)),
                )
            return False


class SqlFilters:
    """The filters in use, by their texts; what was wrong with a text is kept as well."""

    def __init__(self, chars_max: int = KEPT_CHARS_MAX) -> None:
        self._chars_max = chars_max
        self._kept: OrderedDict[str, SqlFilter | SqlError] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, expression: str | None) -> SqlFilter:
        """Return an expression's filter; raises SqlError."""
        if not expression:
            raise SqlError("the expression is empty")
        found = self._kept.get(expression)
        if found is None:
            found = self._make(expression)
        else:
            self._kept.move_to_end(expression)
        if isinstance(found, SqlError):
            raise SqlError(str(found))
        return found

    def _make(self, expression: str) -> SqlFilter | SqlError:
        made: SqlFilter | SqlError
        try:
            made = SqlFilter(expression)
        except SqlError as error:
            # Without its frames, which hold all that was read.
            made = SqlError(str(error))
        if len(expression) <= self._chars_max:
            self._kept[expression] = made
            self._chars += len(expression)
        while self._chars > self._chars_max:
            self._chars -= len(self._kept.popitem(last=False)[0])
        return made


def readable(properties: bytes | memoryview) -> dict[str, str]:
    """Read properties as RocketMQ does: a pair without a name or without a value is none, the last of a name counts."""
    found: dict[str, str] = {}
    for pair in str(properties, "utf-8", "replace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found


sql_filter = SqlFilters().get
"""Returns the filter of an expression, one of those that this process keeps; raises SqlError."""
