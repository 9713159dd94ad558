"""The keys of the offset table, `topic@group` as RocketMQ has them."""

SEPARATOR = "@"


def parts_of(key: str) -> tuple[str, str]:
    """Return the topic and the group of a key.

    What RocketMQ keeps of a group that broadcasts has "@broadcast" behind the group; a topic has no separator.
    """
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
