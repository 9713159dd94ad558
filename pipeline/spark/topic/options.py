"""What `format("raftmq")` can be told: every option read once, with an error that says what it takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from client.consume.subscription import subscribe_by_tags
from client.errors import ConsumeError
from client.nameservers import parse_addresses
from remoting.topics import check_group, check_topic

COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "brokerName",
    "bornTimestamp",
    "storeTimestamp",
    "keys",
    "tags",
    "properties",
    "body",
    "msgId",
)
# The group that brokers see pulling and sending, unless `group` names another one.
GROUP = "raftmq_spark"
PULL_COUNT = 1024
PULL_BYTES = 1024 * 1024
PULL_BYTES_MAX = 15 * 1024 * 1024
RETRY_MS = 60_000
DEDUP_KEY = "sparkRow"
PARTITIONS_MAX = 100_000

Edge = Literal["earliest", "latest"]
# A queue's place: broker name → queue id → offset, or an edge of the queue.
Places = Mapping[str, Mapping[int, int | Edge]]

_COUNT = re.compile(r"\d{1,18}")
# Kafka's source writes the two edges of a partition as these.
_EDGES: Mapping[object, Edge] = {"earliest": "earliest", "latest": "latest", -2: "earliest", -1: "latest"}


class OptionError(ValueError):
    """An option is missing, unknown or wrong; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: at an edge of every queue, at `places`, or at a time (ms; the first has it)."""

    edge: Edge
    places: Places = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The options of one source or sink. None as `start`: what suits the kind of query."""

    namesrv: tuple[str, ...]
    topic: str
    group: str
    start: Bound | None
    end: Bound
    expression: str
    columns: tuple[str, ...]
    partitions_min: int
    offsets_per_trigger: int | None
    fail_on_data_loss: bool
    push_tags: bool
    pull_count: int
    pull_bytes: int
    retry_s: float
    dedup_key: str
    write_id: str | None

    @property
    def tags(self) -> frozenset[str]:
        """The tags that are wanted; none: all messages."""
        return subscribe_by_tags(self.topic, self.expression, 0).tags


# Spark hands option names over in any case.
_KNOWN = (
    "namesrv", "topic", "group", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "tags",
    "columns", "minPartitions", "maxOffsetsPerTrigger", "failOnDataLoss", "pushTags", "pullBatchCount",
    "pullBatchBytes", "retryTimeoutMs", "dedupKey", "writeId",
)  # fmt: skip
# What Spark itself puts among the options.
_SPARKS = frozenset({"path", "checkpointlocation", "queryname"})


def topic_options(options: Mapping[str, str]) -> TopicOptions:
    """Read and check the options; raises OptionError."""
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(set(given) - {name.lower() for name in _KNOWN} - _SPARKS)
    if unknown:
        raise OptionError(f'format("raftmq") has no option {", ".join(unknown)}: it takes {", ".join(_KNOWN)}')
    topic = _required(given, "topic", "the topic to read or write")
    group = given.get("group", GROUP)
    wrong = check_topic(topic) or check_group(group)
    if wrong is not None:
        raise OptionError(wrong)
    try:
        namesrv = parse_addresses(_required(given, "namesrv", "the NameServers as host:port;host:port"))
        expression = subscribe_by_tags(topic, given.get("tags"), 0).expression
    except (ValueError, ConsumeError) as error:
        raise OptionError(str(error)) from error
    per_trigger = given.get("maxoffsetspertrigger")
    return TopicOptions(
        namesrv=namesrv,
        topic=topic,
        group=group,
        start=_bound(given, "startingOffsets", "startingTimestamp"),
        end=_bound(given, "endingOffsets", "endingTimestamp") or Bound("latest"),
        expression=expression,
        columns=_columns(given.get("columns")),
        partitions_min=_count(given, "minPartitions", 1, most=PARTITIONS_MAX),
        offsets_per_trigger=None if per_trigger is None else _count(given, "maxOffsetsPerTrigger", 1),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        push_tags=_flag(given, "pushTags", default=False),
        pull_count=_count(given, "pullBatchCount", PULL_COUNT, most=65_536),
        pull_bytes=_count(given, "pullBatchBytes", PULL_BYTES, most=PULL_BYTES_MAX),
        retry_s=_count(given, "retryTimeoutMs", RETRY_MS) / 1000,
        dedup_key=given.get("dedupkey", DEDUP_KEY),
        write_id=given.get("writeid"),
    )


def parse_places(text: str, option: str) -> dict[str, dict[int, int | Edge]]:
    """Read {"broker-a": {"0": 12, "1": "latest"}}; raises OptionError."""
    example = f'{option} takes "earliest", "latest" or JSON as {{"broker-a": {{"0": 12, "1": "latest"}}}}'
    try:
        table = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise OptionError(f"{example}, not {text!r} ({error})") from None
    if not isinstance(table, dict) or not all(isinstance(queues, dict) for queues in table.values()):
        raise OptionError(f"{example}, not {text!r}")
    found: dict[str, dict[int, int | Edge]] = {}
    for broker, queues in table.items():
        for queue, offset in queues.items():
            place = _place(offset)
            if place is None or not _COUNT.fullmatch(queue):
                raise OptionError(f"{example}, not {queue!r}: {offset!r} for {broker}")
            found.setdefault(broker, {})[int(queue)] = place
    return found


def _place(value: object) -> int | Edge | None:
    """Return a queue's place as JSON has it, None when it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if value in _EDGES:
        return _EDGES[value]
    return value if isinstance(value, int) and value >= 0 else None


def _bound(given: Mapping[str, str], offsets: str, timestamp: str) -> Bound | None:
    text, moment = given.get(offsets.lower()), given.get(timestamp.lower())
    if text is not None and moment is not None:
        raise OptionError(f"{offsets} and {timestamp} say the same thing twice: leave one of them out")
    if moment is not None:
        return Bound("latest", timestamp_ms=_count(given, timestamp, 0, least=0))
    edge = _EDGES.get((text or "").strip().lower())
    if text is None or edge is not None:
        return None if edge is None else Bound(edge)
    return Bound("earliest" if offsets == "startingOffsets" else "latest", parse_places(text, offsets))


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    by_name = {name.lower(): name for name in COLUMNS}
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in asked if name.lower() not in by_name]
    if unknown or not asked or len({name.lower() for name in asked}) < len(asked):
        raise OptionError(f"columns takes each of these at most once, by commas: {', '.join(COLUMNS)}; not {text!r}")
    return tuple(by_name[name.lower()] for name in asked)


def _required(given: Mapping[str, str], name: str, what: str) -> str:
    text = given.get(name, "").strip()
    if not text:
        raise OptionError(f'format("raftmq") needs the option {name}: {what}')
    return text


def _count(given: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int = 10**17) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not _COUNT.fullmatch(text.strip()) or not least <= int(text) <= most:
        raise OptionError(f"{name} takes a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise OptionError(f"{name} takes true or false, not {text!r}")
    return text.strip().lower() == "true"
