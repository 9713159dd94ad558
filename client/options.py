"""Options that an application hands in: a wrong type, or a number out of bounds, is told at the door."""

import math
from typing import Any

from client.errors import ArgumentRefused, ClientError
from remoting.topics import check_group

# Where nothing else bounds a number: what one field of RocketMQ's holds.
INT_MAX = 2**31 - 1


def number_of_seconds(what: str, value: Any, least: float, most: float = math.inf) -> float:
    """Return a time in seconds; raises ArgumentRefused for what is none or out of bounds."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and not math.isnan(value):
            told = float(value)
            if least <= told <= most:
                return told
    except OverflowError:
        pass
    bounds = f"{least:g} to {most:g} seconds" if most < math.inf else f"a number of seconds, {least:g} or more"
    raise ArgumentRefused(f"the {what} is {_shown(value)}: it takes {bounds}")


def optional_seconds(what: str, value: Any, least: float, most: float) -> float | None:
    """Do the same, None for None."""
    return None if value is None else number_of_seconds(what, value, least, most)


def milliseconds(what: str, value: Any, least: float, most: float) -> int:
    """Return a time in milliseconds, rounded up; errors as above."""
    return math.ceil(number_of_seconds(what, value, least, most) * 1000)


def count_of(what: str, value: Any, most: int = INT_MAX, least: int = 1) -> int:
    """Return a whole number within bounds; raises ArgumentRefused."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentRefused(f"the {what} is {_shown(value)}: it takes a number from {least} to {most}")
    return value


def group_of(group: Any, refused: type[ClientError]) -> str:
    """Return the name of a group; raises `refused` for what is none."""
    wrong = check_group(group) if isinstance(group, str) else f"the group is {_shown(group)}: it takes a str"
    if wrong is not None:
        raise refused(wrong)
    return str(group)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:64]
    except ValueError:  # an integer of thousands of digits
        return f"a huge {type(value).__name__}"
