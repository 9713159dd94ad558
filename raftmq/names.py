"""The public names of the package `raftmq`, each where it comes from."""

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
