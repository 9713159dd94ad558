"""Tag expressions: what a consumer wants of a topic. Pure."""

from dataclasses import dataclass

from client.errors import ConsumeError
from remoting.bodies.registry import SubscriptionData
from remoting.javahash import tags_code
from remoting.message import MessageExt
from remoting.topics import check_topic

ALL = "*"
# Expressions travel in every heartbeat and pull.
EXPRESSION_CHARACTERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and the tags wanted of it (none: all). `version` is the moment it was made, in ms."""

    topic: str
    expression: str
    tags: frozenset[str]
    version: int

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
            expressionType="TAG",
        )


def subscribe_by_tags(topic: str, expression: str | None, version: int) -> Subscription:
    """Read ``"*"`` or ``"TagA || TagB"``; raises ConsumeError when the topic or the expression cannot be."""
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
