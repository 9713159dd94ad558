"""What a message must fulfil before it is stored, and the response code of each refusal.

The checks that depend only on the topic and the configuration are made once and remembered until either changes; a
TopicConfig is never altered in place, so it is enough to compare identities.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.leader_only import beneath
from broker.messages.fresh_topics import FreshTopics
from broker.messages.timed_record import TIMERS, slot_of, timed, timer_limits
from broker.settings.config import BrokerConfig, LiveConfig
from remoting import topics as names
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codes import TRANSACTION_MASK, MessageSysFlag, Perm, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import SendMessageRequestHeader
from remoting.properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    decode_properties,
    encode_properties,
)
from remoting.server import Connection
from runtime.clock import Clock
from store.log.dispatch import parse_delay_levels
from store.types import PendingRecord, PutStatus

# Topics whose checks are remembered; when it is full all are forgotten and made again.
REMEMBERED_MAX = 100_000
DLQ_QUEUES = 1
# Characters that a refusal repeats of what somebody asked for.
LITE_CHARS_MAX = 100
# In the place of a delay level, of a prepared message.
PREPARED = -1
_FOREVER = float("inf")
# The bit of topicSysFlag that says that a topic belongs to a unit.
UNIT_TOPIC = 1
# Bits of sysFlag that a producer decides: compression and its codec, several tags. The others are the store's.
CLIENT_SYS_FLAGS = int(MessageSysFlag.COMPRESSED | MessageSysFlag.MULTI_TAGS) | 0x700
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

# A property that must be looked at before storing; the text searched begins with the separator.
_SPECIAL = (
    "\x02(?:DELAY\x01|TIMER_DE|TRAN_MSG\x01|WAIT\x01f|POP_CK\x01|MSG_REGION\x01|TRACE_ON\x01|CLUSTER\x01|__RMQ\\.TR|"
    "_SYS_MSG_PR|__LITE_TOPIC\x01|INNER_MULTI_DISPATCH\x01)"
)
special = re.compile(_SPECIAL).search
special_bytes = re.compile(_SPECIAL.encode()).search
# What asks for a lite topic, or for light message queues.
_LITE = ("__LITE_TOPIC", "INNER_MULTI_DISPATCH")
_WRITTEN_BY_BROKER = (PROPERTY_POP_CK, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH, PROPERTY_CLUSTER)


# Returns a group, which the connection beside it may have made by that.
FindGroup = Callable[[str, object | None], SubscriptionGroupConfig | None]


class SendTopics(Protocol):
    """What is needed of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic."""
        ...

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        default_queue_nums: int,
        topic_sys_flag: int = 0,
        creator: object | None = None,
    ) -> TopicConfig | None:
        """Create a topic after a pattern."""
        ...

    def create_for_retry(self, topic: str, queue_nums: int) -> TopicConfig:
        """Create a retry or dead-letter topic."""
        ...


class Target(NamedTuple):
    """Where a message goes: what was found out about its topic."""

    config: TopicConfig
    queue_limit: int
    write_queues: int
    sys_flag: int
    retry_group: str | None
    """The consumer group when this is its %RETRY% topic."""
    fresh: FreshTopics | None
    """Holds answers back while the topic is not yet on disk."""


class CheckedProperties(NamedTuple):
    """What the properties of a message ask for."""

    text: str
    waits: bool
    """The producer waits for the disk."""
    level: int
    """Delay level, 0 for none; PREPARED: it waits as a half message until its producer ends the transaction."""
    out_ms: int
    """The slot of a timer message, 0 for none."""


class MessageChecks:
    """The checks of one broker. A refusal is a CommandError with the code that the producer gets."""

    def __init__(
        self,
        live: LiveConfig,
        topics: SendTopics,
        find_group: FindGroup,
        clock: Clock,
        random_below: Callable[[int], int],
        fresh: FreshTopics | None = None,
    ) -> None:
        """`find_group` may create the group; `random_below(n)` returns a number in 0..n-1."""
        self._fresh = fresh
        self._live = live
        self._topics = topics
        self._find_group = find_group
        self._clock = clock
        self._random_below = random_below
        self._config: BrokerConfig | None = None
        self._targets: dict[str, Target] = {}
        self._closed_until_ms = 0
        # Levels change with the next start only, as the store's due times do.
        self._levels = len(parse_delay_levels(live.store.messageDelayLevel))

    def target(self, header: SendMessageRequestHeader, creator: object | None = None) -> Target:
        """Return where a message goes, creating the topic for the connection `creator` when that is allowed."""
        if self._live.broker is not self._config:
            self._reload()
        if self._closed_until_ms:
            self._check_open()
        topic = header.topic
        target = self._targets.get(topic)
        if target is not None and target.config is self._topics.get(topic):
            return target
        return self._admit(header, creator)

    def run_flags(self, topics: Sequence[str], queues_max: Sequence[int]) -> list[int] | None:
        """Return what each topic sets in the sysFlag of its records; None when one has to be looked at, or its queues.

        Made from what target() has found out before; `queues_max` has each topic's highest queue.
        """
        if self._live.broker is not self._config or self._closed_until_ms:
            return None
        flags = []
        for topic, queue_max in zip(topics, queues_max, strict=True):
            target = self._targets.get(topic)
            usual = target is not None and target.config is self._topics.get(topic) and target.retry_group is None
            if target is None or not usual or queue_max >= target.queue_limit:
                return None
            flags.append(target.sys_flag)
        return flags

    def queue(self, target: Target, queue_id: int) -> int:
        """Return the queue that a message goes to; a negative id leaves the choice to the broker."""
        if queue_id < 0 < target.write_queues:
            return self._random_below(target.write_queues)
        if 0 <= queue_id < target.queue_limit:
            return queue_id
        raise CommandError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic {target.config.topicName} has "
            f"{target.config.readQueueNums} read and {target.config.writeQueueNums} write queues",
        )

    def dead_letter(self, group: str, header: SendMessageRequestHeader) -> str | None:
        """Return the dead-letter topic when a message of a %RETRY% topic was tried too often, else None."""
        config = self._require_group(group)
        allowed = header.maxReconsumeTimes
        if allowed is None or allowed < 0:
            allowed = config.retryMaxTimes
        if (header.reconsumeTimes or 0) <= allowed:
            return None
        return self._topics.create_for_retry(names.dlq_topic(group), DLQ_QUEUES).topicName

    def properties(
        self, text: str, *, dead_letter: bool = False, batch: bool = False, again: int = 0, group: str = ""
    ) -> CheckedProperties:
        """Return what properties ask for, without what the broker itself writes; dead letters are never delayed.

        A batch cannot be delayed; a level counts for more than a time. `group` is the producer's, of what may be
        prepared; `again` above 0: a consumer wants it again, and what was a transaction once, or was in a lite topic
        of RocketMQ's, is none any more.
        """
        found = decode_properties(text.encode())
        if not (dead_letter or again):
            _refuse_lite(found)
        prepared = found.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true" and not dead_letter
        if prepared and not group:
            raise transactions_refused()
        wanted = found.pop(PROPERTY_DELAY, "")
        level = 0 if dead_letter else self._delay_level(wanted)
        if level and batch:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"delay level {wanted}: messages of a batch have no delay")
        if prepared and not (again > 0 and level > 0):
            level = self._prepare(found, level, group)
        out_ms = self._slot(found, dead=dead_letter or level != 0, batch=batch)
        waits = found.get(PROPERTY_WAIT, "true").lower() != "false"
        for name in _WRITTEN_BY_BROKER:
            found.pop(name, None)
        for name in [name for name in found if name.startswith(TRANSIENT_PREFIX)]:
            del found[name]
        try:
            return CheckedProperties(encode_properties(found).decode(), waits, level, out_ms)
        except ValueError as error:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None

    def _prepare(self, found: dict[str, str], level: int, group: str) -> int:
        """Have a half message's properties name who is to be asked about it, and the delay that begins afterwards."""
        if any(name.startswith("TIMER_DE") for name in found):
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, "a prepared message has a delay level, or no delay")
        broker = self._live.broker
        if broker.rejectTransactionMessage:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.advertised_ip()}] sending transaction message is forbidden",
            )
        found.setdefault(PROPERTY_PRODUCER_GROUP, group)
        if level:
            found[PROPERTY_DELAY] = str(level)
        return PREPARED

    def check_size(self, body_bytes: int, properties_bytes: int) -> None:
        """Refuse a message that is too long."""
        limit = self._live.store.maxMessageSize
        if body_bytes > limit or properties_bytes > PROPERTIES_BYTES_MAX:
            raise too_long(body_bytes, properties_bytes, limit)

    def _delay_level(self, text: str) -> int:
        """Return the level that DELAY names, at most the highest there is; 0: no delay."""
        try:
            level = int(text or "0")
        except ValueError:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"delay level {text!r}: it takes a number") from None
        if level > 0 and not self._levels:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"delay level {level}: messageDelayLevel names no levels")
        return min(max(level, 0), self._levels)

    def _slot(self, found: dict[str, str], *, dead: bool, batch: bool) -> int:
        """Return the slot of a timer message, 0 for none; `dead`: times count no more, and go."""
        if dead:
            for name in TIMERS:
                found.pop(name, None)
            return 0
        if batch and (named := [name for name in TIMERS if name in found]):
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"{named[0]}: messages of a batch have no delay")
        return slot_of(found, self._clock.now_ms(), timer_limits(self._live.store))

    def timed(self, record: PendingRecord, out_ms: int) -> PendingRecord:
        """Return the record that waits for its slot."""
        return timed(record, out_ms, self._clock.now_ms(), timer_limits(self._live.store))

    def _reload(self) -> None:
        self._config = config = self._live.broker
        self._targets.clear()
        self._closed_until_ms = config.startAcceptSendRequestTimeStamp

    def _check_open(self) -> None:
        if self._clock.now_ms() < self._closed_until_ms:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {self._closed_until_ms} (ms since 1970)"
            )
        self._closed_until_ms = 0

    def _admit(self, header: SendMessageRequestHeader, creator: object | None) -> Target:
        topic = header.topic
        if (wrong := names.check_topic(topic)) is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
        # Whoever wrote a check point of POP could have messages come again that are nobody's business of his.
        if topic in names.NOT_FOR_SENDING or topic.startswith(names.REVIVE_LOG_PREFIX):
            raise CommandError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic)
        if config is None:
            config = self._create(header, beneath(creator))
            if self._fresh is not None:
                self._fresh.made(topic)
        broker = self._live.broker
        if not broker.brokerPermission & Perm.WRITE and config.order:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.advertised_ip()}] sending message is forbidden"
            )
        if len(self._targets) >= REMEMBERED_MAX:
            self._targets.clear()
        multi_tags = MessageSysFlag.MULTI_TAGS if config.topicFilterType == "MULTI_TAG" else 0
        retry_group = topic[len(names.RETRY_PREFIX) :] if names.is_retry_topic(topic) else None
        target = Target(
            config,
            max(config.readQueueNums, config.writeQueueNums),
            config.writeQueueNums,
            int(multi_tags),
            retry_group,
            self._fresh if self._fresh is not None and topic in self._fresh else None,
        )
        if target.fresh is None:
            self._targets[topic] = target
        return target

    def _require_group(self, group: str, creator: object | None = None) -> SubscriptionGroupConfig:
        config = self._find_group(group, creator)
        if config is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}: create it first"
            )
        return config

    def _create(self, header: SendMessageRequestHeader, creator: object | None) -> TopicConfig:
        topic = header.topic
        if names.is_retry_topic(topic):
            self._require_group(topic[len(names.RETRY_PREFIX) :], creator)
            return self._topics.create_for_retry(topic, 1)
        config = self._topics.create_for_send(
            topic, header.defaultTopic, header.defaultTopicQueueNums, UNIT_TOPIC if header.unitMode else 0, creator
        )
        if config is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        return config


def wait_seconds_max(config: BrokerConfig) -> float:
    """Return for how long a send may have waited for its turn (seconds) when it is still served."""
    return config.waitTimeMillsInSendQueue / 1000 if config.brokerFastFailureEnable else _FOREVER


def waited_too_long(connection: Connection, request: Command) -> CommandError:
    """Return the refusal of a send whose turn came so late that its client gives it up: RocketMQ's words."""
    return CommandError(
        ResponseCode.SYSTEM_BUSY,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{request.waited * 1000:.0f}ms, size of queue: {connection.unserved} bytes",
    )


def check_sys_flag(sys_flag: int, *, transaction: bool = False) -> int:
    """Return the bits that a producer may set; refuses those of a transaction where there is none."""
    if sys_flag & TRANSACTION_MASK and not transaction:
        raise transactions_refused()
    return sys_flag & CLIENT_SYS_FLAGS


def _refuse_lite(found: Mapping[str, str]) -> None:
    """Refuse what would be stored and given to nobody who waits for it in its lite topic."""
    for name in _LITE:
        if wanted := found.get(name):
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{name}={wanted[:LITE_CHARS_MAX]}: lite topics and light message queues are not available; send the "
                "message without this property, to a topic of its own",
            )


def transactions_refused() -> CommandError:
    """Return the refusal of a message that is prepared by halves: in a batch, or without TRAN_MSG."""
    return CommandError(
        ResponseCode.NO_PERMISSION, "a prepared message says TRAN_MSG=true and goes alone: here it would be delivered"
    )


def too_long(body_bytes: int, properties_bytes: int, limit: int) -> CommandError:
    """Return the refusal of a message that does not fit."""
    return CommandError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal: body of {body_bytes} bytes (at most {limit}), "
        f"properties of {properties_bytes} bytes (at most {PROPERTIES_BYTES_MAX})",
    )


def remark_of(status: PutStatus) -> str:
    """Return what the producer is told of a record that the store did not take."""
    return _REMARKS.get(status, status.name)


_REMARKS = {
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now. It may be caused by one of the following reasons: the "
    "broker's disk is full, the log cannot be written, or the broker is stopping.",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, the disk is full or the folder cannot be written.",
    PutStatus.MESSAGE_ILLEGAL: "the message is illegal: topic, body or properties are longer than the log takes.",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: f"the message is illegal: properties exceed {PROPERTIES_BYTES_MAX} bytes.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.UNKNOWN_ERROR: "[RAFT] outcome unknown: the message may be stored, now or later, or not.",
}
