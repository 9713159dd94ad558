"""Names of topics and groups: the system's own, what is allowed, how retry and dead-letter ones are made."""

import re

AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
RAFT_TOPIC = "RMQ_SYS_RAFT"
REVIVE_LOG_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        RAFT_TOPIC,
    }
)
# Topics that no client may send to, although nothing else about them is unusual.
NOT_FOR_SENDING = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC}
    | {OFFSET_MOVED_EVENT, RAFT_TOPIC}
)

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS",
    }
)

# Lengths in characters. A record holds a topic's length in one byte, which bounds all of them.
TOPIC_LENGTH_MAX = 127
DERIVED_TOPIC_LENGTH_MAX = 255  # of %RETRY% and %DLQ% topics
GROUP_LENGTH_MAX = 120

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED_TEXT = "^[%|a-zA-Z0-9_-]+$"


def retry_topic(group: str) -> str:
    """Return the topic that keeps a group's messages until they are tried again."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return where a group finds again what it took of a topic and did not acknowledge.

    `v2`: the name of enableRetryTopicV2, which tells group and topic apart whatever they are called.
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def origin_of(retry: str, group: str) -> str:
    """Return the topic whose messages come again in one of a group's retry topics; any other name as it is."""
    for v2 in (False, True):
        prefix = pop_retry_topic("", group, v2=v2)
        if retry.startswith(prefix):
            return retry[len(prefix) :]
    return retry


def dlq_topic(group: str) -> str:
    """Return the topic that keeps a group's messages which were tried too often."""
    return group if group.startswith(DLQ_PREFIX) else DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Tell whether a topic keeps messages to be tried again."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Tell whether a topic keeps dead letters."""
    return topic.startswith(DLQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Tell whether a topic belongs to the system: on the list, or with the system's prefix."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Tell whether a consumer or producer group belongs to the system."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(name: str) -> str | None:
    """Return None when a topic may be called so, else what is wrong with the name."""
    if not name.strip():
        return "The specified topic is blank"
    if _ALLOWED.fullmatch(name) is None:
        return f"The specified topic[{_shown(name)}] contains illegal characters, allowing only {_ALLOWED_TEXT}"
    limit = DERIVED_TOPIC_LENGTH_MAX if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_LENGTH_MAX
    if len(name) > limit:
        return f"The specified topic is longer than topic max length {limit}."
    return None


def check_group(name: str) -> str | None:
    """Return None when a group may be called so, else what is wrong with the name."""
    if not name.strip():
        return "The specified group is blank"
    if _ALLOWED.fullmatch(name) is None:
        return f"The specified group[{_shown(name)}] contains illegal characters, allowing only {_ALLOWED_TEXT}"
    if len(name) > GROUP_LENGTH_MAX:
        return f"The specified group is longer than group max length {GROUP_LENGTH_MAX}."
    return None


def _shown(name: str) -> str:
    return name if len(name) <= DERIVED_TOPIC_LENGTH_MAX else name[:DERIVED_TOPIC_LENGTH_MAX] + "..."
