"""Where an idempotent send goes after an attempt of unknown outcome, and what it asks brokers for."""

import time

import pytest

from client.compression import Codec
from client.message import Message
from client.produce.outgoing import STAY_SHARE, Outgoing, Packer
from remoting.bodies.registry import MessageQueue
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.errors import ConnectError, ConnectionLost, InvokeTimeout, ResponseError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.msgid import UniqKeys

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
QUEUES = [A0, B0, A1]
MARK = int(MessageSysFlag.IDEMPOTENT)


def outgoing(*, idempotent: bool = True, batch: bool = False, body: bytes = b"body") -> Outgoing:
    packer = Packer(
        UniqKeys("127.0.0.1"), compress_over=100, body_bytes_max=10_000, codec=Codec.ZLIB, idempotent=idempotent
    )
    message = Message("T", body)
    out = packer.pack([message, message] if batch else message)
    out.deadline = time.monotonic() + 100.0
    return out


@pytest.mark.parametrize("batch", [False, True])
def test_the_mark_is_a_bit_of_the_sends_flags(batch: bool) -> None:
    for idempotent, wanted in ((True, MARK), (False, 0)):
        request = outgoing(idempotent=idempotent, batch=batch).request("P", A0, 4)
        assert request.code == (RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2)
        assert request.header(SendMessageRequestHeaderV2).sysFlag & MARK == wanted
        assert (
            outgoing(idempotent=idempotent).request("P", A0, 4, oneway=True).header(SendMessageRequestHeaderV2).sysFlag
            & MARK
            == 0
        )
    packed = outgoing(body=b"b" * 1000).request("P", A0, 4)
    assert packed.header(SendMessageRequestHeaderV2).sysFlag & MessageSysFlag.COMPRESSED


@pytest.mark.parametrize("error", [InvokeTimeout("a", 1.0), ConnectionLost("gone")])
def test_an_unknown_outcome_stays_with_the_group_that_may_know_it(error: Exception) -> None:
    out = outgoing()
    assert out.choice(QUEUES) == (QUEUES, None)
    before = time.monotonic()
    out.failed(A0, error)
    after = time.monotonic()
    assert out.choice(QUEUES) == ([A0, A1], None)
    # Its group is in no route just now: better elsewhere than nowhere.
    assert out.choice([B0]) == ([B0], "a")
    earliest, latest = (now + (out.deadline - now) * STAY_SHARE for now in (before, after))
    assert earliest <= out.stay_until <= latest
    # Further failures there make it stay no longer.
    until = out.stay_until
    out.failed(A1, ConnectError("refused"))
    assert out.stay_until == until
    out.stay_until = time.monotonic() - 0.1
    assert out.choice(QUEUES) == (QUEUES, "a")


@pytest.mark.parametrize(
    ("idempotent", "error"),
    [
        (True, ConnectError("refused")),
        (True, ResponseError(ResponseCode.SYSTEM_BUSY, "busy", "a")),
        (False, InvokeTimeout("a", 1.0)),
    ],
)
def test_what_is_known_as_not_stored_goes_elsewhere_at_once(idempotent: bool, error: Exception) -> None:
    out = outgoing(idempotent=idempotent)
    out.failed(A0, error)
    assert out.choice(QUEUES) == (QUEUES, "a")


def test_who_stays_does_so_though_another_group_refused_meanwhile() -> None:
    out = outgoing()
    out.failed(A0, ConnectionLost("gone"))
    out.failed(B0, ResponseError(ResponseCode.SYSTEM_BUSY, "busy", "b"))
    assert out.choice(QUEUES)[0] == [A0, A1]
