"""Which errors prove that an attempt did not happen. All others leave it open, for ever.

| what came back                                             | it                            |
|---|---|
| no connection, or no room for a request on it              | was not sent: FAIL            |
| a frame that is too long                                   | was not sent: FAIL            |
| a refusal of `REFUSALS`: given before anything is appended | did not happen: FAIL          |
| FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE | stands in some log: INFO    |
| SYSTEM_ERROR and every other code                          | may have happened: INFO       |
| connection lost, no answer in time, cancelled, unreadable  | may have happened: INFO       |

A wrong FAIL makes the checks report an aborted read that is none, a wrong INFO only weakens them: in doubt, INFO.
"""

from pipeline.history.rows import Kind
from remoting.codes import ResponseCode
from remoting.errors import FrameError, InvokeError, ResponseError

REFUSALS = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)


def outcome(error: BaseException) -> Kind:
    """Return how an operation ended that ended with `error`: FAIL or INFO."""
    if isinstance(error, ResponseError):
        return Kind.FAIL if error.code in REFUSALS else Kind.INFO
    if isinstance(error, FrameError):
        return Kind.FAIL
    if isinstance(error, InvokeError) and not error.sent:
        return Kind.FAIL
    return Kind.INFO


def words(error: BaseException) -> str:
    """Return a short name that is the same for all errors of a kind: there are few, and histories keep each once."""
    if isinstance(error, ResponseError):
        known = error.code in ResponseCode._value2member_map_
        return f"{error.code} {ResponseCode(error.code).name}" if known else f"code {error.code}"
    return type(error).__name__
