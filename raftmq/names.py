"""The public names of the package `raftmq`, each where it comes from."""

from client.admin.client import AdminClient, BrokerEntry, GroupProgress, QueueProgress
from client.compression import Codec
from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchLimits
from client.consume.popped import PoppedMessage
from client.consume.push import PushConsumer
from client.consume.push_queue import PullLimits
from client.consume.rebalance import (
    average,
    average_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from client.consume.simple import SimpleConsumer
from client.credentials import Credentials
from client.errors import (
    ArgumentRefused,
    ClientClosed,
    ClientError,
    ConsumeError,
    MessageRefused,
    RequestFailed,
    RequestRefused,
    RequestTimedOut,
    RouteError,
    SendBacklogFull,
    SendFailed,
)
from client.hooks import ConsumeCall, ConsumeHook, ConsumeOutcome, SendCall, SendHook
from client.instance import ClientInstance
from client.message import (
    ConsumeFrom,
    ConsumeResult,
    Message,
    MessageModel,
    RetryLater,
    SendResult,
    SendStatus,
    split_batch,
)
from client.produce.batching import Batching
from client.produce.producer import Producer
from client.produce.selectors import select_by_hash
from client.produce.transaction import Transaction, TransactionResult, TransactionState
from client.produce.transactions import TransactionProducer
from client.replies import ReplyMessage, answering, reply_to
from remoting.bodies.registry import MessageQueue
from remoting.errors import InvokeError, ResponseError
from remoting.message import MessageExt
from runtime.tls import ClientTls

__all__ = [
    "AdminClient",
    "ArgumentRefused",
    "Batching",
    "BrokerEntry",
    "ClientClosed",
    "ClientError",
    "ClientInstance",
    "ClientTls",
    "Codec",
    "ConsumeCall",
    "ConsumeError",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeOutcome",
    "ConsumeResult",
    "Credentials",
    "FetchLimits",
    "GroupProgress",
    "InvokeError",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageRefused",
    "PoppedMessage",
    "Producer",
    "PullLimits",
    "PushConsumer",
    "QueueProgress",
    "ReplyMessage",
    "RequestFailed",
    "RequestRefused",
    "RequestTimedOut",
    "ResponseError",
    "RetryLater",
    "RouteError",
    "SendBacklogFull",
    "SendCall",
    "SendFailed",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "answering",
    "average",
    "average_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
    "reply_to",
    "select_by_hash",
    "split_batch",
]
