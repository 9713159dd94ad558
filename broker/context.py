"""What the parts of a broker are told of it, as two values: the broker itself, and the tables of what it knows."""

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

from broker.clients import ClientTable
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.topics import TopicTable
from broker.role import BrokerRole
from broker.settings.config import LiveConfig
from broker.stats import BrokerStats
from runtime.clock import Clock
from store.messagestore import MessageStore


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """One broker, as its parts see it."""

    live: LiveConfig
    store: MessageStore
    role: BrokerRole
    clock: Clock
    address: str
    """Where clients find it, "host:port"."""
    store_host: bytes
    """The same as records hold it."""
    threads: Executor
    """Reads what is not in memory."""


class Tables(NamedTuple):
    """What a broker knows."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    stats: BrokerStats
