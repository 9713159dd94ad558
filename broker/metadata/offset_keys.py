"""The keys of the offset table, `topic@group` as RocketMQ has them."""

SEPARATOR = "@"


def is_of(key: str, topic: str, group: str) -> bool:
    """Tell whether a key is of a topic and a group; "" for either is of all."""
    return (not topic or key.startswith(topic + SEPARATOR)) and (not group or key.endswith(SEPARATOR + group))


def parts_of(key: str) -> tuple[str, str]:
    """Return the topic and the group of a key.

    What RocketMQ keeps of a group that broadcasts has "@broadcast" behind the group; a topic has no separator.
    """
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
