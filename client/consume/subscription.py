"""Subscriptions: what a consumer wants of a topic, by tags or by SQL92. Pure."""

from dataclasses import dataclass, replace

from client.errors import ConsumeError
from remoting.bodies.registry import SubscriptionData
from remoting.javahash import tags_code
from remoting.message import MessageExt
from remoting.topics import check_topic

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
# Expressions travel in every heartbeat and pull.
EXPRESSION_CHARACTERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and what is wanted of it: by tags (none: all), or by SQL92, which only brokers understand.

    `version` is the moment it was made, in ms.
    """

    topic: str
    expression: str
    tags: frozenset[str]
    version: int
    kind: str = TAG

    def same_as(self, other: "Subscription") -> bool:
        """Tell whether another one wants the same."""
        return (self.topic, self.kind, self.expression) == (other.topic, other.kind, other.expression)

    def accepts(self, message: MessageExt) -> bool:
        """Tell whether the message carries a wanted tag: brokers compare hashes only, so some come by accident."""
        return not self.tags or message.tags in self.tags

    def data(self) -> SubscriptionData:
        """Return the subscription as heartbeats carry it."""
        tags = sorted(self.tags)
        return SubscriptionData(
            topic=self.topic,
            subString=self.expression,
            tagsSet=tags,
            codeSet=[tags_code(tag) for tag in tags],
            subVersion=self.version,
            expressionType=self.kind,
        )


def subscribe_to(topic: str, expression: str | None, sql: str | None, version: int) -> Subscription:
    """Read what a consumer was told to want: tags, or SQL92; raises ConsumeError when it cannot be."""
    if sql is None:
        return subscribe_by_tags(topic, expression, version)
    plain = subscribe_by_tags(topic, ALL, version)
    if expression not in {ALL, None, ""}:
        raise ConsumeError("a topic is filtered by tags or by SQL92, not by both: the property TAGS holds a tag")
    if not isinstance(sql, str) or not sql.strip():
        raise ConsumeError("the SQL92 expression is empty")
    if len(sql) > EXPRESSION_CHARACTERS_MAX:
        raise ConsumeError(f"the SQL92 expression has {len(sql)} characters, {EXPRESSION_CHARACTERS_MAX} at most")
    return replace(plain, expression=sql, kind=SQL92)


def subscribe_by_tags(topic: str, expression: str | None, version: int) -> Subscription:
    """Read ``"*"`` or ``"TagA || TagB"``; raises ConsumeError when the topic or the expression cannot be."""
    if not isinstance(topic, str) or not isinstance(expression, str | None):
        raise ConsumeError(f"the topic is {topic!r}, the expression {expression!r}: they take a str each")
    wrong = check_topic(topic)
    if wrong is not None:
        raise ConsumeError(wrong)
    text = (expression or ALL).strip()
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise ConsumeError(f"the tag expression has {len(text)} characters, {EXPRESSION_CHARACTERS_MAX} at most")
    if text in {"", ALL}:
        return Subscription(topic, ALL, frozenset(), version)
    tags = frozenset(tag.strip() for tag in text.split("||") if tag.strip())
    if not tags:
        raise ConsumeError(f"the tag expression {text!r} names no tag: it is '*' or 'TagA || TagB'")
    return Subscription(topic, text, tags, version)
