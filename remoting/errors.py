"""What can go wrong between two processes, and what the caller must do about it.

RemotingError
├── FrameError             bytes that are no frame: the connection is closed
├── HeaderError            a header field is missing or of the wrong kind: code 1 (SYSTEM_ERROR), the text as remark
├── CommandError           raised by a handler: becomes the response with its code and remark
└── InvokeError            a request of ours that has no good answer
    ├── ConnectError       no connection could be made; nothing was sent
    ├── BacklogFull        too many requests in flight on the connection; nothing was sent
    ├── ConnectionLost     the connection ended before the answer came; the outcome is unknown
    ├── InvokeTimeout      no answer in time; the outcome is unknown
    └── ResponseError      the peer answered with an error code (`code`, `remark`)
"""

from collections.abc import Mapping

from remoting.codes import ResponseCode

# Codes after which another broker may well accept the same send (RocketMQ's retryResponseCodes).
RETRIABLE_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 501, 1500})
# Codes that say that the route this client has is old.
REROUTE_CODES = frozenset({14, 17, 501, 1500})


class RemotingError(Exception):
    """Base of everything that this package raises."""


class FrameError(RemotingError):
    """The bytes received are no frame of this protocol."""


class HeaderError(RemotingError):
    """A header lacks a required field, or a field's text does not fit its type."""


class CommandError(RemotingError):
    """A handler's refusal: the response code and the remark that the caller gets, and custom fields, if any."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"CODE: {code} DESC: {remark}")
        self.code = code
        self.remark = remark
        self.ext: Mapping[str, str] | None = None


class InvokeError(RemotingError):
    """A request of ours has no good answer. `sent` tells whether the peer may have acted on it."""

    sent = True
    retriable = True
    reroute = True


class ConnectError(InvokeError):
    """No connection could be made."""

    sent = False


class BacklogFull(InvokeError):
    """Too many requests are in flight on the connection."""

    sent = False
    reroute = False


class ConnectionLost(InvokeError):
    """The connection ended before the answer came."""


class InvokeTimeout(InvokeError):
    """No answer came in time."""


class ResponseError(InvokeError):
    """The peer answered with an error code."""

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        name = ResponseCode(code).name if code in ResponseCode._value2member_map_ else "unknown code"
        super().__init__(f"{address or 'peer'} answered {code} ({name}): {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.retriable = code in RETRIABLE_CODES
        self.reroute = code in REROUTE_CODES
