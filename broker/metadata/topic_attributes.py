"""Topic attributes: the changes "+name=value,-name" that administrators send, and which attributes there are."""

from collections.abc import Callable, Mapping

from remoting.codes import ResponseCode
from remoting.errors import CommandError

# Length of the text of changes, in characters.
CHANGES_LENGTH_MAX = 4096

_MESSAGE_TYPES = frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"})


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"it takes {', '.join(values)} on this broker"


# What each attribute takes. Queue types and cleaning other than the usual ones need stores that this broker lacks.
_ATTRIBUTES: Mapping[str, Callable[[str], str | None]] = {
    "message.type": _one_of(*sorted(_MESSAGE_TYPES)),
    "queue.type": _one_of("SimpleCQ"),
    "cleanup.policy": _one_of("DELETE"),
    "reserve.time": _one_of("-1"),
}


def parse_changes(text: str | None) -> dict[str, str | None]:
    """Read "+name=value,-name": name → value, or None for one that goes. Raises CommandError."""
    changes: dict[str, str | None] = {}
    if not text:
        return changes
    if len(text) > CHANGES_LENGTH_MAX:
        raise _wrong(f"the attributes take {len(text)} characters, at most {CHANGES_LENGTH_MAX}")
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        sign, name, equals, value = part[0], *part[1:].partition("=")
        if sign not in "+-" or not name or (sign == "+") != bool(equals):
            raise _wrong(f"attribute {part!r} is neither +name=value nor -name")
        if name in changes:
            raise _wrong(f"attribute {name!r} is named twice")
        changes[name] = value if sign == "+" else None
    return changes


def changes_of(attributes: Mapping[str, str]) -> dict[str, str | None]:
    """Read the attributes of a configuration in a body: names may carry a sign; without one they are set."""
    changes: dict[str, str | None] = {}
    for name, value in attributes.items():
        if name.startswith("-"):
            changes[name[1:]] = None
        else:
            changes[name.removeprefix("+")] = value
    return changes


def apply_changes(current: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the attributes after the changes. Raises CommandError for names and values that there are not."""
    result = dict(current)
    for name, value in changes.items():
        if value is None:
            if name not in result:
                raise _wrong(f"attribute {name!r} is not set, so it cannot be removed")
            del result[name]
            continue
        check = _ATTRIBUTES.get(name)
        if check is None:
            raise _wrong(f"attribute {name!r} is unknown; there are {', '.join(_ATTRIBUTES)}")
        if (reason := check(value)) is not None:
            raise _wrong(f"attribute {name}={value}: {reason}")
        result[name] = value
    return result


def _wrong(text: str) -> CommandError:
    # RocketMQ's code for them, other than for a topic's other values.
    return CommandError(ResponseCode.SYSTEM_ERROR, text)
