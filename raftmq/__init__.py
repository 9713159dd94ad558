"""RaftMQ: a message broker cluster that speaks RocketMQ's protocol, and its client library.

    async with Producer("my_producer", "127.0.0.1:9876") as producer:
        await producer.send(Message("orders", b"hello"))

These are the public names; `raftmq.sync` has the same classes without asyncio, `client` says what each one does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.admin import AdminClient, BrokerEntry, GroupProgress, QueueProgress
    from client.assigned import PullLimits
    from client.compression import Codec
    from client.errors import (
        ClientClosed,
        ClientError,
        ConsumeError,
        MessageRefused,
        RouteError,
        SendBacklogFull,
        SendFailed,
    )
    from client.fetch import FetchLimits
    from client.instance import ClientInstance
    from client.litepull import LitePullConsumer
    from client.message import (
        ConsumeFrom,
        ConsumeResult,
        Message,
        MessageModel,
        SendResult,
        SendStatus,
        split_batch,
    )
    from client.producer import Producer
    from client.push import PushConsumer
    from client.rebalance import (
        average,
        average_by_circle,
        by_config,
        by_machine_room,
        consistent_hash,
        machine_room_nearby,
    )
    from remoting.bodies import MessageQueue
    from remoting.errors import InvokeError, ResponseError
    from remoting.message import MessageExt

__all__ = [
    "AdminClient",
    "BrokerEntry",
    "ClientClosed",
    "ClientError",
    "ClientInstance",
    "Codec",
    "ConsumeError",
    "ConsumeFrom",
    "ConsumeResult",
    "FetchLimits",
    "GroupProgress",
    "InvokeError",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageRefused",
    "Producer",
    "PullLimits",
    "PushConsumer",
    "QueueProgress",
    "ResponseError",
    "RouteError",
    "SendBacklogFull",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "average",
    "average_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
    "split_batch",
]

_NAMES = {
    "client.admin": "AdminClient BrokerEntry GroupProgress QueueProgress",
    "client.assigned": "PullLimits",
    "client.compression": "Codec",
    "client.errors": "ClientClosed ClientError ConsumeError MessageRefused RouteError SendBacklogFull SendFailed",
    "client.fetch": "FetchLimits",
    "client.instance": "ClientInstance",
    "client.litepull": "LitePullConsumer",
    "client.message": "ConsumeFrom ConsumeResult Message MessageModel SendResult SendStatus split_batch",
    "client.producer": "Producer",
    "client.push": "PushConsumer",
    "client.rebalance": "average average_by_circle by_config by_machine_room consistent_hash machine_room_nearby",
    "remoting.bodies": "MessageQueue",
    "remoting.errors": "InvokeError ResponseError",
    "remoting.message": "MessageExt",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: servers and most commands need no client, and start sooner."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
