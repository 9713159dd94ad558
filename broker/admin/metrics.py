"""The broker's metrics: what its parts have counted, under RocketMQ's names where it has them (docs/metrics.md).

Nothing is done for them before somebody scrapes. What has a series for each topic, pair of topic and group, or kind of
client is bounded: beyond it `raftmq_series_omitted` tells how many are not shown.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from broker.admin.runtime_info import Backlog
from broker.context import BrokerContext, Tables
from broker.replication import SendTimes
from remoting.codes import LanguageCode, ResponseCode
from remoting.server import RemotingServer, port_figures
from remoting.topics import is_retry_topic, is_system_group, is_system_topic
from runtime.figures import Figure, Kind, Value, by, counter, gauge, histogram
from runtime.gaps import LoopGaps
from runtime.timings import Timings

# Topics that have series of their own, the first that were written to: two series each.
TOPIC_SERIES_MAX = 500
# (topic, group) pairs that have some: two of what was handed out, one of the lag, which costs a look-up per queue.
PAIR_SERIES_MAX = 1000
# Kinds of connections (group, language, version) of producers, and of consumers; clients choose what they call theirs.
CLIENT_SERIES_MAX = 500
OTHER = "other"

K = TypeVar("K")

_TOPIC = ("topic", "is_system")
_PAIR = ("topic", "consumer_group", "is_retry", "is_system")
_CODES = {int(code): str(int(code)) for code in ResponseCode}


class Counted(NamedTuple):
    """What counts beside tables and store."""

    backlog: Callable[[], Backlog]
    unsupported: Callable[[], Iterator[tuple[tuple[str, str], float]]]
    """Yields how often what this broker does not have was asked for: (feature, code) and the number."""
    gaps: LoopGaps
    ports: Callable[[], Sequence[RemotingServer]]
    """Returns what listens for clients."""
    answers: Mapping[int, int]
    """How often a send was answered with each code."""
    sends: SendTimes
    pulls: Timings
    transactions: Callable[[], Iterable[Figure]] = tuple
    """Yields what is counted of transactions."""
    replies: Mapping[str, int] = MappingProxyType({})
    """How often a reply was pushed to its client, or why it was not."""
    timers: Callable[[], Iterable[Figure]] = tuple
    """Returns what is told of timer messages."""


class CountingMode(Protocol):
    """What is asked of a broker's mode: broker.mode.Mode."""

    def clock_apart(self) -> str:
        """Return why it may not lead its group for its clock; "" when nothing is against it."""
        ...

    def measures(self) -> Iterable[Figure]:
        """Return what only brokers of this mode have."""
        ...


class BrokerFigures:
    """Names the figures, each time that they are asked for."""

    def __init__(self, context: BrokerContext, tables: Tables, mode: CountingMode, counted: Counted) -> None:
        self._config, self._store, self._clock = context.live, context.store, context.clock
        self._topics, self._groups, self._offsets, self._clients, self._stats = tables
        self._mode = mode
        self._counted = counted
        self._omitted: dict[str, int] = {}

    @property
    def common(self) -> dict[str, str]:
        """The labels of all of them."""
        broker = self._config.broker
        return {"cluster": broker.brokerClusterName, "node_type": "broker", "node_id": broker.name()}

    def figures(self) -> Iterator[Figure]:
        """Yield all of them."""
        self._omitted = {}
        counted = self._counted
        yield gauge("rocketmq_broker_permission", "2 write, 4 read, 6 both", self._config.broker.brokerPermission)
        yield gauge("rocketmq_topic_number", "Topics configured", len(self._topics.tables))
        yield gauge("rocketmq_consumer_group_number", "Consumer groups configured", len(self._groups.tables))
        yield from self._traffic()
        yield from self._requests()
        yield from self._connections()
        yield from port_figures(counted.ports())
        yield self._lag()
        committers = self._offsets.committers
        backs = committers.backs.items()
        yield by("by", "counter", "raftmq_offset_backs_total", "Commits that took an offset back, by whom", backs)
        yield counter("raftmq_offset_commits_late_total", "Commits that were too late and ignored", committers.late)
        yield from self._storage()
        yield from self._integrity()
        yield from self._loop()
        yield from counted.transactions()
        yield from counted.timers()
        yield from self._mode.measures()
        yield by("of", "gauge", "raftmq_series_omitted", "What has no series for the bound", self._omitted.items())

    def _first(self, of: str, keys: Iterable[K], most: int) -> list[K]:
        """Return the first of those that could have series, and note how many have none."""
        rest = iter(keys)
        shown = list(islice(rest, most))
        self._omitted[of] = sum(1 for _ in rest)
        return shown

    def _traffic(self) -> Iterator[Figure]:
        stats, totals = self._stats, self._stats.totals
        topics = self._first("topic", stats.topics(), TOPIC_SERIES_MAX)
        by_topic = [((topic, _flag(is_system_topic(topic))), one) for topic, one in topics]
        count, size = ((key, one.count) for key, one in by_topic), ((key, one.size) for key, one in by_topic)
        yield _many("counter", "rocketmq_messages_in_total", "Messages stored", _TOPIC, count)
        yield _many("counter", "rocketmq_throughput_in_total", "Bytes stored", _TOPIC, size)
        pairs = self._first("consumed", stats.groups(), PAIR_SERIES_MAX)
        by_pair = [(_pair(topic, group), one) for topic, group, one in pairs]
        given, sizes = ((key, one.count) for key, one in by_pair), ((key, one.size) for key, one in by_pair)
        yield _many("counter", "rocketmq_messages_out_total", "Messages handed to consumers", _PAIR, given)
        yield _many("counter", "rocketmq_throughput_out_total", "Bytes handed to consumers", _PAIR, sizes)
        yield counter("raftmq_messages_in_total", "Messages stored, of all topics", totals.put)
        yield counter("raftmq_bytes_in_total", "Bytes stored, of all topics", totals.put_bytes)
        yield counter("raftmq_messages_out_total", "Messages handed to consumers, of all topics", totals.got)
        yield counter("raftmq_bytes_out_total", "Bytes handed to consumers, of all topics", totals.got_bytes)
        pulls = [("found", totals.found), ("missed", totals.missed)]
        yield by("result", "counter", "raftmq_pulls_total", "Pulls answered: with messages, or with none", pulls)

    def _requests(self) -> Iterator[Figure]:
        counted, backlog = self._counted, self._counted.backlog()
        answers: Counter[str] = Counter({_CODES[ResponseCode.SUCCESS]: 0})
        for code, count in counted.answers.items():
            answers[_CODES.get(code, OTHER)] += count
        said = "Sends by the code of their answer; 501 in a group: sent on to the member that leads"
        yield by("code", "counter", "raftmq_sends_total", said, answers.items())
        said = "Replies to requests, by whether the client that asked has them"
        yield by("outcome", "counter", "raftmq_replies_total", said, counted.replies.items())
        sends = counted.sends
        yield histogram("raftmq_send_seconds", "From the arrival of what was stored to its answer", sends.send)
        yield histogram(
            "raftmq_queue_seconds", "What the first message of an entry or write waited for it", sends.queue
        )
        yield histogram(
            "raftmq_pull_seconds", "To read what a pull is answered with, without its time parked", counted.pulls
        )
        waits = [("send", backlog.pending_bytes), ("pull", backlog.parked_pulls)]
        text = "What waits: bytes not yet acknowledged (send), parked requests (pull)"
        yield by("processor", "gauge", "rocketmq_processor_watermark", text, waits)
        text = "Requests for what this broker does not have"
        labels = ("feature", "request_code")
        yield _many("counter", "rocketmq_unsupported_requests_total", text, labels, counted.unsupported())

    def _connections(self) -> Iterator[Figure]:
        producers = Counter(
            (_language(member.language), str(member.version))
            for members in self._clients.producer_groups().values()
            for member in members
        )
        consumers: Counter[tuple[str, ...]] = Counter()
        for name in self._clients.consumer_groups():
            group = self._clients.consumer_group(name)
            assert group is not None
            mode = "pull" if group.consume_type == "CONSUME_ACTIVELY" else "push"
            for member in group.members.values():
                consumers[name, _language(member.language), str(member.version), mode] += 1
        made = self._first("producers", producers.items(), CLIENT_SERIES_MAX)
        name, text = "rocketmq_producer_connections", "Connections of producers"
        yield _many("gauge", name, text, ("language", "version"), made)
        taken = self._first("consumers", consumers.items(), CLIENT_SERIES_MAX)
        labels = ("consumer_group", "language", "version", "consume_mode")
        yield _many("gauge", "rocketmq_consumer_connections", "Connections of consumers", labels, taken)

    def _lag(self) -> Figure:
        known = (pair for pair in self._offsets.pairs() if self._topics.get(pair[0]) is not None)
        pairs = self._first("lag", known, PAIR_SERIES_MAX)
        rows = [(_pair(topic, group), self._behind(topic, group)) for topic, group in pairs]
        text = "Messages not yet acknowledged by the group"
        return _many("gauge", "rocketmq_consumer_lag_messages", text, _PAIR, rows)

    def _behind(self, topic: str, group: str) -> int:
        return sum(
            max(0, self._store.max_offset(topic, queue_id) - offset)
            for queue_id, offset in self._offsets.offsets(group, topic).items()
        )

    def _storage(self) -> Iterator[Figure]:
        store, times = self._store.stats(), self._store.times
        kept_ms = self._clock.now_ms() - store.earliest_timestamp if store.earliest_timestamp > 0 else 0
        yield gauge("rocketmq_storage_size", "Bytes of the commit log", store.log_bytes)
        yield gauge("rocketmq_storage_flush_behind_bytes", "Written, not yet synced", store.flush_behind_bytes)
        behind = store.dispatch_behind_bytes
        yield gauge("rocketmq_storage_dispatch_behind_bytes", "Written, not yet in the queues", behind)
        text = "Age of the oldest message, in milliseconds"
        yield gauge("rocketmq_storage_message_reserve_time", text, max(0, kept_ms))
        yield gauge("rocketmq_storage_disk_ratio", "Used part of the file system", store.disk_ratio)
        yield gauge("raftmq_storage_disk_free_bytes", "Bytes that the file system has left", self._free_bytes())
        text = "1 while the store takes no messages: a full disk, mostly"
        yield gauge("raftmq_storage_writes_refused", text, store.refused is not None)
        text = "Times that messages began to be refused, or to be taken again"
        yield counter("raftmq_storage_writability_changes_total", text, store.refused_changes)
        text = "Kept for a full disk; 0 while it is given up"
        yield gauge("raftmq_storage_reserve_bytes", text, store.reserve_bytes)
        yield histogram("raftmq_append_seconds", "Writes of the commit log, one per entry or turn", times.write)
        yield histogram("raftmq_fsync_seconds", "Syncs of the commit log", times.sync)

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._config.store.log_folder)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _integrity(self) -> Iterator[Figure]:
        found, entries = self._store.integrity(), self._store.entries
        mended, total = entries.mending.progress() if entries is not None else (0, 0)
        yield counter("raftmq_storage_damage_found_total", "Damaged places met in the log", found.found)
        yield counter("raftmq_storage_scrubbed_bytes_total", "Read again and checked", found.checked)
        yield counter("raftmq_storage_scrub_passes_total", "Checks of the whole log", found.passes)
        yield gauge("raftmq_storage_damaged_places", "Damaged places that are not mended", len(found.places))
        yield gauge("raftmq_storage_scrub_position", "Where the check is", found.position)
        yield counter("raftmq_repaired_bytes_total", "Damaged bytes written again from other members", mended)
        yield gauge("raftmq_repair_left_bytes", "Damaged bytes still to come from others", total - mended)

    def _loop(self) -> Iterator[Figure]:
        gaps = self._counted.gaps
        text = "The longest time of late that the event loop was held up"
        yield gauge("raftmq_loop_gap_longest_seconds", text, gaps.longest_lately())
        yield histogram("raftmq_loop_gap_seconds", "Times that the event loop was held up", gaps.times)
        text = "1 while this member may not lead its group for its clock"
        yield gauge("raftmq_clock_apart", text, bool(self._mode.clock_apart()))


def _many(
    kind: Kind, name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[Sequence[str], Value]]
) -> Figure:
    return Figure(name, text, kind, [(tuple(key), value) for key, value in rows], labels)


def _pair(topic: str, group: str) -> tuple[str, ...]:
    return topic, group, _flag(is_retry_topic(topic)), _flag(is_system_group(group))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _language(number: int) -> str:
    return LanguageCode(number).name if number in LanguageCode._value2member_map_ else LanguageCode.OTHER.name
