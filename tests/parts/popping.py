"""What tests of POP ask brokers, as official clients form it, and the handles that these make of the answers."""

import base64
from typing import Any

import orjson

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from remoting.message import MessageExt
from remoting.record import decode_records
from runtime.clock import SystemClock


class Popped:
    """A message that was taken, and its handle."""

    def __init__(self, message: MessageExt, handle: str) -> None:
        self.message = message
        self.handle = handle
        self.body = bytes(message.body)


class Popper:
    """Pops of one group from one broker."""

    def __init__(self, client: RemotingClient, address: str, group: str = "Poppers", topic: str = "T") -> None:
        self.client, self.address, self.group, self.topic = client, address, group, topic

    async def ask(self, code: int, header: Any, body: bytes = b"", wait: float = 20.0) -> Command:
        return await self.client.invoke(self.address, Command.request(code, header, body), wait)

    def pop_header(self, **changes: Any) -> PopMessageRequestHeader:
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
            "pollTime": 0, "bornTime": SystemClock().now_ms(), "initMode": 0, "expType": "TAG", "exp": "*",
            "order": False, "attemptId": None, **changes,
        }  # fmt: skip
        return PopMessageRequestHeader(**fields)

    async def answer(self, **changes: Any) -> Command:
        return await self.ask(RequestCode.POP_MESSAGE, self.pop_header(**changes))

    async def pop(self, **changes: Any) -> list[Popped]:
        """Take messages; [] when there are none."""
        answer = await self.answer(**changes)
        assert answer.code in {0, 210}, answer.remark
        return popped(answer) if answer.code == 0 else []

    async def acknowledge(self, taken: Popped, **changes: Any) -> Command:
        header = self._of(AckMessageRequestHeader, taken, changes)
        return await self.ask(RequestCode.ACK_MESSAGE, header)

    async def change(self, taken: Popped, invisible_ms: int, **changes: Any) -> Command:
        header = self._of(ChangeInvisibleTimeRequestHeader, taken, {"invisibleTime": invisible_ms, **changes})
        return await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def acknowledge_all(self, *taken: Popped) -> Command:
        """Acknowledge in one request, as a batch."""
        acks: dict[tuple[str, ...], dict[str, Any]] = {}
        for each in taken:
            start, pop_ms, invisible, revive, kind, _broker, queue, offset = each.handle.split(" ")
            one = acks.setdefault(
                (start, pop_ms, queue, kind),
                {"c": self.group, "t": self.topic, "r": kind, "so": int(start), "q": int(queue), "rq": int(revive),
                 "pt": int(pop_ms), "it": int(invisible), "bits": 0},
            )  # fmt: skip
            one["bits"] |= 1 << (int(offset) - int(start))
        for one in acks.values():
            bits = one.pop("bits")
            one["b"] = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
        body = orjson.dumps({"brokerName": "broker-a", "acks": list(acks.values())})
        return await self.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)

    def _of(self, kind: Any, taken: Popped, changes: dict[str, Any]) -> Any:
        message = taken.message
        fields = {
            "consumerGroup": self.group, "topic": message.topic, "queueId": message.queue_id,
            "extraInfo": taken.handle, "offset": message.queue_offset, **changes,
        }  # fmt: skip
        return kind(**fields)


def popped(answer: Command) -> list[Popped]:
    """Return what an answer brings, with the handles that the official client makes."""
    ext = answer.ext
    starts = {
        (kind, queue): start for kind, queue, start in (one.split(" ") for one in ext["startOffsetInfo"].split(";"))
    }
    found = []
    for message in decode_records(answer.body):
        kind = ("2" if "+" in message.topic else "1") if message.topic.startswith("%RETRY%") else "0"
        start = starts[kind, str(message.queue_id)]
        told = f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {kind} broker-a"
        found.append(Popped(message, f"{told} {message.queue_id} {message.queue_offset}"))
    return found
