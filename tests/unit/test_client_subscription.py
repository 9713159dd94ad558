import pytest

from client.consume.subscription import subscribe_by_tags, subscribe_to
from client.errors import ConsumeError
from remoting.javahash import tags_code
from remoting.message import MessageExt


def tagged(tag: str | None) -> MessageExt:
    properties = {} if tag is None else {"TAGS": tag}
    return MessageExt("T", 0, 0, 0, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 2), 0, 0, b"", 0, properties, 1)


@pytest.mark.parametrize("expression", ["*", "", None, " * "])
def test_a_star_takes_everything(expression: str | None) -> None:
    subscription = subscribe_by_tags("T", expression, 1)
    assert subscription.expression == "*"
    assert subscription.accepts(tagged(None))
    assert subscription.accepts(tagged("x"))


def test_tags_are_compared_as_texts_not_as_hashes() -> None:
    # "Aa" and "BB" have the same Java hash.
    assert tags_code("Aa") == tags_code("BB")
    subscription = subscribe_by_tags("T", "Aa || other", 1)
    assert subscription.accepts(tagged("Aa"))
    assert not subscription.accepts(tagged("BB"))
    assert not subscription.accepts(tagged(None))


def test_the_heartbeat_names_tags_and_codes() -> None:
    data = subscribe_by_tags("T", "b||a", 42).data()
    assert (data.topic, data.subString, data.tagsSet, data.subVersion) == ("T", "b||a", ["a", "b"], 42)
    assert data.codeSet == [tags_code("a"), tags_code("b")]


@pytest.mark.parametrize(("topic", "expression"), [("", "*"), ("no blanks", "*"), ("T", "||"), ("T", "x" * 5000)])
def test_what_cannot_be_subscribed_is_refused(topic: str, expression: str) -> None:
    with pytest.raises(ConsumeError):
        subscribe_by_tags(topic, expression, 1)


def test_a_filter_by_sql_is_the_brokers_alone() -> None:
    subscription = subscribe_to("T", "*", "a > 5", 7)
    assert subscription.accepts(tagged(None))
    data = subscription.data()
    assert (data.expressionType, data.subString, data.tagsSet, data.codeSet) == ("SQL92", "a > 5", [], [])
    assert subscription.same_as(subscribe_to("T", None, "a > 5", 8))
    assert not subscription.same_as(subscribe_by_tags("T", "a > 5", 7))
    assert subscribe_to("T", "x || y", None, 1) == subscribe_by_tags("T", "x || y", 1)


@pytest.mark.parametrize(
    ("topic", "expression", "sql", "match"),
    [
        ("", "*", "a > 5", "topic"),
        ("T", "tag", "a > 5", "not by both"),
        ("T", "*", " ", "empty"),
        ("T", "*", "a" * 4097, "4096 at most"),
    ],
)
def test_a_filter_by_sql_that_cannot_be_is_refused(topic: str, expression: str, sql: str, match: str) -> None:
    with pytest.raises(ConsumeError, match=match):
        subscribe_to(topic, expression, sql, 1)
