"""Editing a broker.conf keeps everything that is not edited."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from broker.settings.config_edit import edit_file, edit_properties
from runtime.config import parse_properties

NAMES = st.text("abcXYZ.", min_size=1, max_size=6)
VALUES = st.text("abc 019/;:-=", max_size=12).map(str.strip)


def test_values_change_in_place() -> None:
    text = "# a comment\n\na = 1\nb:2\n  c=3\n"
    assert edit_properties(text, {"b": "20", "d": "4"}) == "# a comment\n\na = 1\nb=20\n  c=3\nd=4\n"


def test_joined_lines_are_one_entry() -> None:
    text = "namesrvAddr=one;\\\n  two\nx=1\n"
    assert edit_properties(text, {"namesrvAddr": "three"}) == "namesrvAddr=three\nx=1\n"
    assert edit_properties(text, {"x": "2"}) == "namesrvAddr=one;\\\n  two\nx=2\n"
    assert edit_properties("#no join\\\nx=1\n", {"x": "2"}) == "#no join\\\nx=2\n"


def test_a_key_that_stands_twice_changes_twice() -> None:
    assert edit_properties("a=1\na=2\n", {"a": "3"}) == "a=3\na=3\n"


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_read_afterwards_is_the_old_with_the_new_in_it(old: dict[str, str], new: dict[str, str]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in old.items())
    assert parse_properties(edit_properties(text, new)) == {**old, **new}


def test_a_file_is_made_when_there_is_none(tmp_path: Path) -> None:
    edit_file(tmp_path / "conf" / "broker.conf", {"a": "1"})
    assert (tmp_path / "conf" / "broker.conf").read_text() == "a=1\n"
