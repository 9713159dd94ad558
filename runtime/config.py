"""Configuration: RocketMQ's key=value files read into frozen dataclasses.

A configuration class is a frozen dataclass whose field names are RocketMQ's own keys (camelCase) and whose field types
are str, int, float or bool; a key that is no name in Python stands as "key" in its field's metadata. It may have a
method ``validate()`` that raises ConfigError. Keys that are unknown are handed back so that the process can warn about
them by name.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

# In place of a secret, wherever a configuration is shown.
NOT_SHOWN = "(not shown)"


class ConfigError(ValueError):
    """A configuration value cannot be used; the text names the key and says what it takes."""


def parse_properties(text: str) -> dict[str, str]:
    """Read ``key=value`` lines; ``#`` and ``!`` start comments, blanks around key and value are dropped.

    A trailing backslash joins the next line (java.util.Properties). A line without ``=`` or ``:`` is a key with an
    empty value.
    """
    values: dict[str, str] = {}
    # What the next line is joined to, in pieces: there may be as many as lines.
    pending: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            if pending or line[:-1]:
                pending.append(line[:-1])
            continue
        pending.append(line)
        _take_line("".join(pending), values)
        pending = []
    if pending:
        _take_line("".join(pending), values)
    return values


def _take_line(line: str, values: dict[str, str]) -> None:
    if line and line[0] not in "#!":
        cut = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=len(line))
        values[line[:cut].strip()] = line[cut + 1 :].strip()


def format_properties(values: Mapping[str, object]) -> str:
    """Write ``key=value`` lines, booleans as ``true``/``false``, sorted by key."""
    lines = [f"{key}={_text(values[key])}" for key in sorted(values)]
    return "\n".join(lines) + "\n" if lines else ""


def load_properties(path: Path) -> dict[str, str]:
    """Read a properties file; raises ConfigError when it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read configuration file {path}: {error}") from error


def build_config(cls: type[T], values: Mapping[str, str]) -> tuple[T, list[str]]:
    """Make a configuration of `cls` from texts; returns it and the keys that `cls` does not know.

    Raises ConfigError when a value does not fit its field's type or ``validate()`` refuses the whole.
    """
    known, unknown = _coerced(cls, values)
    config = cls(**known)
    _validate(config)
    return config, unknown


def replace_config(config: T, values: Mapping[str, str]) -> tuple[T, list[str]]:
    """Return a copy of `config` with the texts of `values` put in, and the unknown keys; raises ConfigError."""
    known, unknown = _coerced(type(config), values)
    changed: T = dataclasses.replace(config, **known)  # type: ignore[type-var]
    _validate(changed)
    return changed, unknown


def config_values(config: object) -> dict[str, object]:
    """Return the fields of a configuration by key; those that are marked as secret only by whether there is one."""
    assert dataclasses.is_dataclass(config)
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        values[key_of(field)] = NOT_SHOWN if value and "secret" in field.metadata else value
    return values


def key_of(field: "dataclasses.Field[Any]") -> str:
    """Return a field's key in files."""
    return str(field.metadata.get("key", field.name))


def _coerced(cls: type[Any], values: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return values by field name, and the keys that `cls` does not know."""
    hints = get_type_hints(cls)
    fields = {key_of(field): field.name for field in dataclasses.fields(cls) if field.init}
    known = {fields[key]: _coerce(key, value, hints[fields[key]]) for key, value in values.items() if key in fields}
    return known, sorted(key for key in values if key not in fields)


def _validate(config: object) -> None:
    validate = getattr(config, "validate", None)
    if validate is not None:
        validate()


def _coerce(key: str, value: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.strip().lower()]
        if kind is int:
            return int(value.strip())
        if kind is float:
            return float(value.strip())
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{key}={value}: it takes {wanted}") from None
    return value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
