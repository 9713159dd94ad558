"""broker/filter.py: what a subscription lets through."""

import pytest

from broker.filter import ExpressionError, is_tag_type, tag_codes


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything(expression: str | None) -> None:
    assert tag_codes(expression) is None


def test_tags_become_java_hashes() -> None:
    assert tag_codes("TagA") == frozenset({2598919})
    assert tag_codes("TagA || TagB||  TagC ") == frozenset({2598919, 2598920, 2598921})
    assert tag_codes("|| TagA") == frozenset({2598919})


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(ExpressionError):
        tag_codes("||")


def test_an_absent_type_means_tags() -> None:
    assert is_tag_type(None)
    assert is_tag_type("")
    assert is_tag_type("TAG")
    assert not is_tag_type("SQL92")
