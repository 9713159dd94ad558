"""What is counted of transactions, under RocketMQ's names where it has them (docs/metrics.md)."""

from collections import Counter
from collections.abc import Iterator, Mapping

from broker.transactions.halves import Half, HalfTable
from remoting.topics import is_system_topic
from runtime.figures import Figure, Value, counter, histogram
from runtime.timings import Timings

# Topics that have series of their own; those that come later are counted as this one.
TOPICS_MAX = 500
OTHER = "other"
# RocketMQ's: five seconds, a minute, ten, an hour, twelve and a day.
FINISH_BOUNDS_S = (5.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0)
_LABELS = ("topic", "is_system")


class TransactionCounts:
    """Ends by topic since the start, and how long transactions took."""

    def __init__(self) -> None:
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.latency = Timings()
        self.finished: dict[str, Timings] = {}

    def ended(self, half: Half, now_ms: int, *, committed: bool) -> None:
        """Count a transaction that has ended."""
        counts = self.committed if committed else self.rolled_back
        topic = half.topic if half.topic in counts or len(counts) < TOPICS_MAX else OTHER
        counts[topic] += 1
        if committed:
            seconds = max(0, now_ms - half.since_ms) / 1000
            self.latency.add(seconds)
            if topic not in self.finished:
                self.finished[topic] = Timings(FINISH_BOUNDS_S)
            self.finished[topic].add(seconds)

    def figures(self, table: HalfTable | None, checks: int, given_up: int) -> Iterator[Figure]:
        """Yield the metrics."""
        waiting = Counter(half.topic for half in table.pending.values()) if table is not None else Counter[str]()
        shown = dict(waiting.most_common(TOPICS_MAX))
        if rest := waiting.total() - sum(shown.values()):
            shown[OTHER] = shown.get(OTHER, 0) + rest
        yield Figure("rocketmq_half_messages", "Half messages that are undecided", "gauge", _rows(shown), _LABELS)
        text = "Transactions committed"
        yield Figure("rocketmq_commit_messages_total", text, "counter", _rows(self.committed), _LABELS)
        text = "Transactions rolled back"
        yield Figure("rocketmq_rollback_messages_total", text, "counter", _rows(self.rolled_back), _LABELS)
        yield histogram("raftmq_transaction_seconds", "From a half message to its commit", self.latency)
        text = "From a half message to its commit, by topic"
        yield Figure("rocketmq_finish_message_latency", text, "histogram", _rows(self.finished), _LABELS)
        yield counter("raftmq_transaction_checks_total", "Times that a producer was asked", checks)
        yield counter("raftmq_transactions_given_up_total", "Transactions that nobody ended", given_up)


def _rows(counts: Mapping[str, Value]) -> list[tuple[tuple[str, ...], Value]]:
    return [((topic, "true" if is_system_topic(topic) else "false"), count) for topic, count in counts.items()]
