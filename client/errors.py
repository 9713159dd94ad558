"""What an application can get from this library, and what it should do about it.

ClientError
├── ClientClosed       the producer or consumer is not started, or was closed
├── MessageRefused     the message can never be sent as it is (name, size, properties): mend it
├── RouteError         no NameServer answered, or none knows the topic: the text names whom was asked
├── SendBacklogFull    too many sends are unanswered: await some of them (`Producer.room`) and go on
├── SendFailed         every attempt failed; `sent` tells whether the message may have been stored all the same
└── ConsumeError       a position, queue or subscription that cannot be used

Errors of one request (remoting.errors.InvokeError) come through as they are from AdminClient, and as `__cause__`
of SendFailed.
"""

from remoting.codes import ResponseCode
from remoting.errors import InvokeError, ResponseError


class ClientError(Exception):
    """Base of everything that this package raises."""


class ClientClosed(ClientError):
    """The producer or consumer is not started or was closed."""


class MessageRefused(ClientError):
    """The message can never be sent as it is."""


class RouteError(ClientError):
    """No NameServer answered, or none of them knows the topic. `retriable` tells whether it may pass by itself."""

    def __init__(self, text: str, *, retriable: bool) -> None:
        super().__init__(text)
        self.retriable = retriable


class SendBacklogFull(ClientError):
    """Too many sends are unanswered; nothing was sent."""


class SendFailed(ClientError):
    """Every attempt to send failed. `sent` tells whether a broker may have stored the message all the same."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class ConsumeError(ClientError):
    """A position, queue or subscription that cannot be used."""


# Answers that say for certain that nothing was stored: busy, unknown code, illegal message, no service, no permission…
# SYSTEM_ERROR is not among them: a broker says it of whatever went wrong, before or after storing.
_REFUSALS = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)


def may_be_stored(error: BaseException) -> bool:
    """Tell whether a broker may have stored the message of an attempt that ended with `error`."""
    if isinstance(error, ResponseError):
        return error.code not in _REFUSALS
    return isinstance(error, InvokeError) and error.sent
