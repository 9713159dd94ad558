"""broker/messages/tag_filter.py: what a subscription lets through."""

import pytest

from broker.messages.tag_filter import EXPRESSION_CHARS_MAX, ExpressionError, _kept_codes, is_tag_type, tag_codes


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


def test_an_expression_is_read_up_to_a_bound_and_kept_when_it_is_short() -> None:
    long = "||".join(f"tag-{n}" for n in range(400))
    assert 256 < len(long) <= EXPRESSION_CHARS_MAX
    kept = _kept_codes.cache_info().currsize
    codes = tag_codes(long)
    assert codes is not None
    assert len(codes) == 400
    assert _kept_codes.cache_info().currsize == kept
    tag_codes("short || enough")
    assert _kept_codes.cache_info().currsize == kept + 1
    with pytest.raises(ExpressionError, match=f"at most {EXPRESSION_CHARS_MAX} characters, not 4097"):
        tag_codes("a" * (EXPRESSION_CHARS_MAX + 1))
