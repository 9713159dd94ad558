"""Drives the official C++ client (PyPI `rocketmq`) in a process of its own: one JSON order in, one JSON answer out.

The library has threads, logs and atexit habits of its own, so it never shares a process with pytest. The order names
what to do: `send`, `push`, `pull` or `load`; the answer is a list of send results or of received messages, for `load`
what was acknowledged and what failed. It is said before the library is shut down, whose own end may be an unhappy one.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException

R = TypeVar("R")
# What is answered, and how the library ends.
Done = tuple[Any, Callable[[], None]]

# Between a failed send and the next attempt.
PAUSE_S = 0.1
# Between one that was acknowledged and the next: after a restart the library looks for a route for half a minute, and
# other producers would send by the ten thousand meanwhile.
PACE_S = 0.003
# The library looks for its first route within a time of its own, whatever it is asked to wait, and gives up: on a busy
# machine before the NameServer has answered. Nothing was sent then.
NO_ROUTE = "No route info"
FIRST_ROUTE_S = 20.0


def build(order: dict[str, Any], message: dict[str, Any]) -> Any:
    built = Message(order["topic"])
    built.set_body(message["body"])
    if "tags" in message:
        built.set_tags(message["tags"])
    if "keys" in message:
        built.set_keys(message["keys"])
    for name, value in message.get("properties", {}).items():
        built.set_property(name, value)
    return built


def result_of(result: Any) -> dict[str, Any]:
    return {"status": int(result.status), "msg_id": result.msg_id, "offset": result.offset}


def send(order: dict[str, Any]) -> Done:
    producer = Producer(order["group"], timeout=5000)
    producer.set_namesrv_addr(order["namesrv"])
    signed(producer, order)
    producer.start()
    results: list[dict[str, Any]] = []
    how = order["how"]
    messages = [build(order, message) for message in order["messages"]]
    if how == "batch":
        results.append(result_of(routed(producer.send_batch, messages)))
    elif how == "async":
        results = send_async(producer, messages)
    else:
        for built, message in zip(messages, order["messages"], strict=True):
            if how == "sync":
                results.append(result_of(routed(producer.send_sync, built)))
            elif how == "orderly":
                results.append(result_of(routed(producer.send_orderly, built, message["shard"])))
            elif how == "oneway":
                routed(producer.send_oneway, built)
            else:
                raise ValueError(f"unknown way to send: {how}")
    if how == "oneway":
        # The library writes them later, or never when it is shut down first: whoever gave the order says when to end.
        sys.stdin.readline()
    return results, producer.shutdown


def signed(client: Producer | PushConsumer, order: dict[str, Any]) -> None:
    """Have a client sign what it asks, when the order says who it is."""
    if "access_key" in order:
        client.set_session_credentials(order["access_key"], order["secret_key"], "")


def routed(call: Callable[..., R], *arguments: Any) -> R:
    """Call the library, again and again while it has no route yet: as a program does that starts beside its brokers."""
    deadline = time.monotonic() + FIRST_ROUTE_S
    while True:
        try:
            return call(*arguments)
        except RocketMQException as error:
            if NO_ROUTE not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


class Outcome:
    """What one asynchronous send came to. An attempt that raises may have called back as well: it is not looked at."""

    def __init__(self, producer: Any, built: Any) -> None:
        self._result: dict[str, Any] = {}
        self._ended = threading.Event()
        producer.send_async(built, self._succeeded, self._failed)

    def wait(self) -> dict[str, Any]:
        if not self._ended.wait(60):
            raise TimeoutError("a callback never came")
        return self._result

    def _succeeded(self, result: Any) -> None:
        self._result = result_of(result)
        self._ended.set()

    def _failed(self, error: Exception) -> None:
        self._result = {"status": -1, "error": str(error)}
        self._ended.set()


def send_async(producer: Any, messages: list[Any]) -> list[dict[str, Any]]:
    outcomes = [routed(Outcome, producer, built) for built in messages]
    return [outcome.wait() for outcome in outcomes]


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def received(message: RecvMessage, names: list[str]) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "body": text(message.body),
        "tags": text(message.tags),
        "keys": text(message.keys),
        "id": message.id,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "properties": {name: text(message.get_property(name)) for name in names},
    }


def push(order: dict[str, Any]) -> Done:
    """Consume until `count` messages came, then `linger_s` longer, so that surplus ones show."""
    messages: list[dict[str, Any]] = []
    enough = threading.Event()

    def on_message(message: RecvMessage) -> None:
        messages.append(received(message, order.get("names", [])))
        if len(messages) >= order["count"]:
            enough.set()

    consumer = PushConsumer(order["group"], orderly=order.get("orderly", False))
    consumer.set_namesrv_addr(order["namesrv"])
    if "instance" in order:
        consumer.set_instance_name(order["instance"])
    consumer.subscribe(order["topic"], on_message, order.get("expression", "*"))
    signed(consumer, order)
    consumer.start()
    enough.wait(order.get("timeout_s", 90))
    # The clock of a foreign library cannot be turned: what should not come is given this long to come.
    time.sleep(order.get("linger_s", 0))
    return messages, consumer.shutdown


def pull(order: dict[str, Any]) -> Done:
    consumer = PullConsumer(order["group"])
    consumer.set_namesrv_addr(order["namesrv"])
    consumer.start()
    names = order.get("names", [])
    messages = [received(message, names) for message in consumer.pull(order["topic"], order.get("expression", "*"))]
    return messages, consumer.shutdown


def load(order: dict[str, Any]) -> Done:
    """Send until standard input says stop; each acknowledgement is said at once. It counts from the first one on.

    Until then the library looks for its first route, and gives up after a few seconds on a machine that is busy.

    After a failure it pauses, as a program would: the library itself returns at once while a broker is gone, and its
    thread that asks the NameServer for a new route cannot connect while another one connects and fails in a busy loop.
    """
    producer = Producer(order["group"], timeout=5000)
    producer.set_namesrv_addr(order["namesrv"])
    producer.start()
    stopping = threading.Event()
    acknowledged: list[str] = []
    failed: list[str] = []

    def work() -> None:
        sent = 0
        while not stopping.is_set():
            name = f"{order['name']}-{sent}"
            sent += 1
            built = Message(order["topic"])
            built.set_body(name)
            try:
                status = int(producer.send_sync(built).status)
            except Exception as error:
                if acknowledged:
                    failed.append(f"{name}: {error}")
                stopping.wait(PAUSE_S)
                continue
            if status != 0:
                failed.append(f"{name}: status {status}")
                continue
            acknowledged.append(name)
            sys.stdout.write("ok\n")
            sys.stdout.flush()
            stopping.wait(PACE_S)

    worker = threading.Thread(target=work)
    worker.start()
    sys.stdin.readline()
    stopping.set()
    worker.join()
    return {"acknowledged": acknowledged, "failed": failed}, producer.shutdown


def main() -> None:
    order = json.loads(sys.stdin.readline())
    answer, shutdown = {"send": send, "push": push, "pull": pull, "load": load}[order["do"]](order)
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    shutdown()
    # The library's destructors would shut down a second time; everything is said.
    os._exit(0)


if __name__ == "__main__":
    main()
