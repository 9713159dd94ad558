"""Reads ACL 1.0's plain_acl.yml: the one door of PyYAML, of which nothing but the parser is used.

Values stay the text that stands in the file, as RocketMQ takes them: the secret key 0123 is no number. What is not an
account's is refused: other keys, keys that stand twice, other kinds of values, aliases and tags, a second document.
Errors name file, line and key, and quote no value that may be a secret.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from auth.model import NAME_LENGTH_MAX
from auth.plain_acl import NamedPermission, PlainAccount, PlainAcl
from remoting.signing import KEY_LENGTH_MAX
from runtime.config import ConfigError

FILE_NAME = "plain_acl.yml"
# A folder beside it, with more of them, in folders of its own too.
MORE_FOLDER = "acl"
SUFFIXES = frozenset({".yml", ".yaml"})
# Bytes of one file: some four thousand accounts, read in a third of a second, in three without libyaml at most.
FILE_BYTES_MAX = 1024 * 1024
# Files of one folder: a broker reads all of them before it starts.
FILES_MAX = 100
# Levels of lists and mappings: the document, accounts, an account, its topicPerms; one more can be named in an error.
DEPTH_MAX = 5

_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
_NOTHING = frozenset({"", "~", "null"})
# libyaml where PyYAML was built with it: ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with its place: a text, None for nothing, a list, or a mapping."""

    value: "str | list[_Node] | dict[str, _Node] | None"
    line: int


@dataclass(frozen=True, slots=True)
class _At:
    """Where in a file something stands, for errors: "conf/plain_acl.yml, line 7: accounts[1].admin"."""

    path: Path
    key: str = ""

    def under(self, key: str) -> "_At":
        return _At(self.path, f"{self.key}.{key}" if self.key else key)

    def nth(self, number: int) -> "_At":
        return _At(self.path, f"{self.key}[{number}]")

    def said(self, line: int) -> str:
        return f"{self.path}, line {line}: {self.key}" if self.key else f"{self.path}, line {line}"

    def error(self, line: int, why: str) -> ConfigError:
        return ConfigError(f"{self.said(line)}: {why}")


def plain_acl_files(folder: Path) -> list[Path]:
    """Return the files of a conf folder in the order that RocketMQ reads them in: acl/ first. Raises ConfigError."""
    more = folder / MORE_FOLDER
    found = sorted(path for path in more.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if len(found) > FILES_MAX:
        raise ConfigError(f"{more}: it holds {len(found)} files of accounts, up to {FILES_MAX} are read")
    own = folder / FILE_NAME
    return [*found, own] if own.exists() else found


def read_plain_acl(path: Path) -> PlainAcl:
    """Return what a file holds; an empty one holds nothing. Raises ConfigError."""
    root, at = _parsed(path, _content(path)), _At(path)
    if root.value is None:
        return PlainAcl(str(path))
    keys = _mapping(root, at, {"accounts", "globalWhiteRemoteAddresses", "dataVersion"})
    white = _each(keys, "globalWhiteRemoteAddresses", at, _text)
    return PlainAcl(
        str(path),
        tuple(_each(keys, "accounts", at, _account)),
        tuple(address for address in white if address),
    )


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: it has more than {FILE_BYTES_MAX} bytes: split it, each account in one file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: this is no text in UTF-8") from None


def _parsed(path: Path, text: str) -> _Node:
    """Return a document's values; nothing deep is ever built."""
    at = _At(path)
    events = _events(at, text)
    root = _Node(None, 1)
    seen = False
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent) and seen:
            raise at.error(_line(event), "a second document: a file holds one")
        if isinstance(event, yaml.NodeEvent):
            root, seen = _built(event, events, at, 0), True
    return root


def _events(at: _At, text: str) -> Iterator[Any]:
    """Yield what the parser finds, without what an account file has no use for."""
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise at.error(_line(event), "an alias: write out what it stands for")
            if getattr(event, "tag", None) not in {None, "!"}:
                raise at.error(_line(event), "a tag: there are texts, lists and mappings only")
            yield event
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The latter two are of numbers that its own parser does not look at: an escaped character, a version.
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise at.error(mark.line + 1 if mark else 1, f"this is no YAML: {why}") from None


def _built(event: Any, events: Iterator[Any], at: _At, depth: int) -> _Node:
    line = _line(event)
    if isinstance(event, yaml.ScalarEvent):
        nothing = not event.style and event.value.lower() in _NOTHING
        return _Node(None if nothing else event.value, line)
    if depth >= DEPTH_MAX:
        raise at.error(line, f"lists and mappings are {DEPTH_MAX} deep at most")
    if isinstance(event, yaml.SequenceStartEvent):
        values: list[_Node] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            values.append(_built(inner, events, at.nth(len(values)), depth + 1))
        return _Node(values, line)
    keys: dict[str, _Node] = {}
    while not isinstance(inner := next(events), yaml.MappingEndEvent):
        if not isinstance(inner, yaml.ScalarEvent):
            raise at.error(_line(inner), "a key is a text")
        if inner.value in keys:
            raise at.error(_line(inner), f"the key {_short(inner.value)} stands twice")
        keys[inner.value] = _built(next(events), events, at.under(_short(inner.value)), depth + 1)
    return _Node(keys, line)


def _account(node: _Node, at: _At) -> PlainAccount:
    keys = _mapping(
        node,
        at,
        {
            "accessKey",
            "secretKey",
            "whiteRemoteAddress",
            "admin",
            "defaultTopicPerm",
            "defaultGroupPerm",
            "topicPerms",
            "groupPerms",
        },
    )

    def text(key: str) -> str:
        found = keys.get(key)
        return "" if found is None else _text(found, at.under(key))

    name, secret = text("accessKey"), text("secretKey")
    for key, value in (("accessKey", name), ("secretKey", secret)):
        if not value.strip():
            raise at.error(node.line, f"an account takes an {key}" if key == "accessKey" else f"it takes a {key}")
    if len(name) > NAME_LENGTH_MAX:
        raise at.under("accessKey").error(node.line, f"it has more than {NAME_LENGTH_MAX} characters")
    return PlainAccount(
        where=at.said(node.line),
        access_key=name,
        secret_key=secret,
        white_address=text("whiteRemoteAddress").strip(),
        admin=_flag(keys.get("admin"), at.under("admin")),
        default_topic=text("defaultTopicPerm").strip(),
        default_group=text("defaultGroupPerm").strip(),
        topics=tuple(_each(keys, "topicPerms", at, _permission)),
        groups=tuple(_each(keys, "groupPerms", at, _permission)),
    )


def _permission(node: _Node, at: _At) -> NamedPermission:
    parts = [part.strip() for part in _text(node, at).split("=") if part]
    if len(parts) != 2 or not parts[0]:
        raise at.error(node.line, "it takes name=permission, such as orders=PUB|SUB")
    if len(parts[0]) > NAME_LENGTH_MAX:
        raise at.error(node.line, f"the name has more than {NAME_LENGTH_MAX} characters")
    return NamedPermission(parts[0], parts[1])


def _mapping(node: _Node, at: _At, known: set[str]) -> dict[str, _Node]:
    if not isinstance(node.value, dict):
        raise at.error(node.line, f"it takes a mapping with some of {', '.join(sorted(known))}")
    for key, found in node.value.items():
        if key not in known:
            raise at.under(_short(key)).error(found.line, f"no such key; there are {', '.join(sorted(known))}")
    return node.value


def _each(keys: dict[str, _Node], key: str, at: _At, read: Callable[[_Node, _At], T]) -> list[T]:
    """Return what the entries of a list are read as; none where there is no list."""
    node, at = keys.get(key), at.under(key)
    if node is None or node.value is None:
        return []
    if not isinstance(node.value, list):
        raise at.error(node.line, "it takes a list")
    return [read(each, at.nth(number)) for number, each in enumerate(node.value)]


def _text(node: _Node, at: _At) -> str:
    if node.value is None:
        return ""
    if not isinstance(node.value, str):
        raise at.error(node.line, "it takes a text")
    if len(node.value) > KEY_LENGTH_MAX or not node.value.isprintable():
        raise at.error(node.line, f"it takes up to {KEY_LENGTH_MAX} characters, all of which can be printed")
    return node.value


def _flag(node: _Node | None, at: _At) -> bool:
    if node is None or node.value is None:
        return False
    word = _text(node, at).lower()
    if word not in _TRUE | _FALSE:
        raise at.error(node.line, "it takes true or false")
    return word in _TRUE


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _short(key: str) -> str:
    """Return a key as errors quote it: short, and in one line."""
    return repr(key[:40]) if len(key) > 40 or not key.isprintable() else key
