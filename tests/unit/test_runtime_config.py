"""runtime/config.py: RocketMQ's properties files into frozen dataclasses."""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.config import (
    ConfigError,
    build_config,
    config_values,
    format_properties,
    load_properties,
    parse_properties,
    replace_config,
)


@dataclass(frozen=True)
class Sample:
    listenPort: int = 10911
    autoCreateTopicEnable: bool = True
    diskRatio: float = 0.75
    brokerName: str = "broker-a"

    def validate(self) -> None:
        if not 0 <= self.listenPort < 65536:
            raise ConfigError(f"listenPort={self.listenPort}: it takes 0 to 65535")


def test_properties_comments_blanks_and_continuation() -> None:
    text = "# a comment\n! another\n\n listenPort = 10999 \nbrokerName=a\\\n  b\nempty=\nbare\nurl=a=b:c\ncolon: x\n"
    assert parse_properties(text) == {
        "listenPort": "10999",
        "brokerName": "ab",
        "empty": "",
        "bare": "",
        "url": "a=b:c",
        "colon": "x",
    }


def test_continuation_at_the_end_of_the_file_is_kept() -> None:
    assert parse_properties("a=b\\") == {"a": "b"}


def test_format_is_read_back() -> None:
    values = {"b": True, "a": 1, "c": "x=y"}
    assert format_properties(values) == "a=1\nb=true\nc=x=y\n"
    assert parse_properties(format_properties(values)) == {"a": "1", "b": "true", "c": "x=y"}
    assert not format_properties({})


def test_build_converts_by_type_and_names_unknown_keys() -> None:
    config, unknown = build_config(
        Sample, {"listenPort": " 1 ", "autoCreateTopicEnable": "FALSE", "diskRatio": "0.5", "zzz": "1", "aaa": "2"}
    )
    assert config == Sample(1, False, 0.5)
    assert unknown == ["aaa", "zzz"]
    assert config_values(config)["listenPort"] == 1


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("listenPort", "x", "a whole number"),
        ("autoCreateTopicEnable", "yes", "true or false"),
        ("diskRatio", "half", "a number"),
        ("listenPort", "70000", "0 to 65535"),
    ],
)
def test_bad_values_name_the_key_and_what_it_takes(key: str, value: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value}: it takes {wanted}"):
        build_config(Sample, {key: value})


def test_replace_keeps_the_rest_and_validates() -> None:
    changed, unknown = replace_config(Sample(brokerName="b"), {"listenPort": "5", "nope": ""})
    assert changed == Sample(5, brokerName="b")
    assert unknown == ["nope"]
    with pytest.raises(ConfigError):
        replace_config(Sample(), {"listenPort": "-1"})


def test_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf"):
        load_properties(tmp_path / "none.conf")
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.conf"):
        load_properties(binary)


def test_lines_that_are_joined_cost_no_more_than_others() -> None:
    """A settings request of 16 MiB of `a\\` stopped a NameServer for minutes: each line copied all before it."""
    began = time.thread_time()
    assert parse_properties("k=" + "a\\\n" * 400_000 + "b\nc=d\n") == {"k": "a" * 400_000 + "b", "c": "d"}
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b\\\n  c\n", {"a": "bc"}),
        ("a=b\\\n\\\nc", {"a": "bc"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n# no\nx", {"x": ""}),
        ("a=b\\\\\nc", {"a": "b\\\\", "c": ""}),
        ("a=\\\n#b", {"a": "#b"}),
    ],
)
def test_lines_are_joined(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values
