"""Changing values in a broker.conf without disturbing the rest: comments, order and unknown keys stay as they are."""

from collections.abc import Mapping
from pathlib import Path

from runtime.config import parse_properties
from runtime.durable import replace_file


def edit_properties(text: str, values: Mapping[str, str]) -> str:
    """Return a properties text with these values: in place where the key stands, else at the end.

    Where a key stands several times, which is where the last one counts, all of them get the value.
    """
    left = dict(values)
    lines: list[str] = []
    for entry in _entries(text):
        key = next(iter(parse_properties("\n".join(entry))), "")
        if key in values:
            lines.append(f"{key}={values[key]}")
            left.pop(key, None)
        else:
            lines.extend(entry)
    lines.extend(f"{key}={value}" for key, value in left.items())
    return "\n".join(lines) + "\n" if lines else ""


def edit_file(path: Path, values: Mapping[str, str]) -> None:
    """Put values into a configuration file, whole or not at all. Raises OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    replace_file(path, edit_properties(text, values).encode())


def _entries(text: str) -> list[list[str]]:
    """Split a text into entries: a line with those that a trailing backslash joins to it."""
    entries: list[list[str]] = []
    joined = False
    for line in text.splitlines():
        if joined:
            entries[-1].append(line)
        else:
            entries.append([line])
        stripped = line.strip()
        comment = not joined and stripped[:1] in {"#", "!"}
        joined = not comment and stripped.endswith("\\") and not stripped.endswith("\\\\")
    return entries
