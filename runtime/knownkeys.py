"""Keys of RocketMQ that a process of ours knows and does not honour: why each may be there, or when it must not be.

A key is harmless when nobody is promised anything by it here: it tunes threads that there are none of, or a feature
whose own switch is refused. It is refused when it asks for a behaviour that is not there. What it is by default asks
for nothing: a file that writes out all defaults starts. The tables are data: broker/settings/foreign_keys.py, namesrv/
and remoting/ have theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runtime.config import ConfigError

# Parts of names of keys whose values stay out of logs and answers.
_SECRETS = ("password", "secret", "credential", "accesskey")


@dataclass(frozen=True, slots=True)
class Harmless:
    """Keys that any value may have."""

    why: str
    keys: str
    """Separated by blanks."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Keys of a behaviour that is not there."""

    what: str
    """What is lacking; for people."""
    keys: str
    """Separated by blanks: "key=default", or "key=default|value" with more values that do not ask for it."""


class KnownKeys:
    """A process' table, looked up by key. A key stands in it once (asserted)."""

    def __init__(self, harmless: Iterable[Harmless], lacking: Iterable[Lacking]) -> None:
        self._harmless: dict[str, str] = {}
        self._lacking: dict[str, tuple[tuple[str, ...], str]] = {}
        for group in harmless:
            for key in group.keys.split():
                assert key not in self, key
                self._harmless[key] = group.why
        for feature in lacking:
            for entry in feature.keys.split():
                key, _, accepted = entry.partition("=")
                assert key not in self, key
                self._lacking[key] = (tuple(accepted.split("|")), feature.what)

    def __contains__(self, key: str) -> bool:
        return key in self._harmless or key in self._lacking

    def __iter__(self) -> Iterator[str]:
        yield from self._harmless
        yield from self._lacking

    def default(self, key: str) -> str | None:
        """Return what a key that may be refused is by default; None for a harmless one, or one not known here."""
        found = self._lacking.get(key)
        return None if found is None else found[0][0]

    def refuse(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError, in one line with all of them, for values that ask for what is not there."""
        wrong = []
        for key, value in values.items():
            accepted, what = self._lacking.get(key, ((), ""))
            if accepted and value.strip() and not any(_same(value.strip(), each) for each in accepted):
                wrong.append(f"{key}={_shown(key, value)} ({what}; default: {accepted[0] or 'empty'})")
        if wrong:
            raise ConfigError(
                "the configuration asks for what is not available; remove each of these keys, or set it to its "
                f"default: {', '.join(sorted(wrong))}"
            )

    def without_effect(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return the harmless ones among some keys, by the reason why they have no effect; both in order."""
        found: dict[str, list[str]] = {}
        for key in sorted(key for key in keys if key in self._harmless):
            found.setdefault(self._harmless[key], []).append(key)
        return dict(sorted(found.items()))


def _same(value: str, accepted: str) -> bool:
    if value.lower() == accepted.lower():
        return True
    try:
        return float(value) == float(accepted)
    except ValueError:
        return False


def _shown(key: str, value: str) -> str:
    return "(not shown)" if any(part in key.lower() for part in _SECRETS) else value
