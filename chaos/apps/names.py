"""Topics, groups and message ids of a run, as producers, consumers and the judge know them."""

PLAIN, ORDERED = "apps_plain", "apps_ordered"
QUEUES = 4
TOPICS = (PLAIN, ORDERED)

WORKERS, ORDERLY, BROADCAST = "apps_workers", "apps_orderly", "apps_broadcast"
LITE, LITE_AUTO = "apps_lite", "apps_lite_auto"
# Group → the topic that it consumes.
GROUPS = {WORKERS: PLAIN, ORDERLY: ORDERED, BROADCAST: PLAIN, LITE: PLAIN, LITE_AUTO: PLAIN}

# One in so many messages is refused by its consumer once, and must come again.
REFUSED_ONE_IN = 200


def message_id(stream: str, number: int) -> str:
    """Return the id of a message: the number in its stream, which is one key's or one producer's."""
    return f"{stream}:{number}"


def parse_id(text: str) -> tuple[str, int]:
    """Return the stream and the number of a message."""
    stream, _colon, number = text.rpartition(":")
    return stream, int(number)


def is_refused(text: str) -> bool:
    """Tell whether consumers refuse the message when they see it for the first time."""
    return parse_id(text)[1] % REFUSED_ONE_IN == REFUSED_ONE_IN // 2
