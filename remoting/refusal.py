"""What a handler's exception is as an answer."""

import logging

from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError

_log = logging.getLogger(__name__)

# What is missing has a name, not a number alone: lite topics (RocketMQ 5.4 and later), and POP_ROLLBACK, with which
# mqadmin has a broker move what is open of POP from RocksDB into the log.
_MISSING = {
    **dict.fromkeys(range(200_070, 200_080), "lite topics are not available"),
    200_056: "there is nothing to take back, what is open of POP is always in the log here",
}


def refusal(request: Command, error: Exception) -> Command:
    """Return the response that a handler's exception amounts to."""
    if isinstance(error, CommandError):
        return Command.response(error.code, error.remark, ext=error.ext)
    if isinstance(error, HeaderError):
        return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
    _log.error("the handler of code %d failed", request.code, exc_info=error)
    return Command.response(ResponseCode.SYSTEM_ERROR, remark_of(error))


def unsupported(request: Command) -> Command:
    """Return the response to a request that has no handler."""
    missing = _MISSING.get(request.code)
    why = "" if missing is None else f": {missing}"
    remark = f" request type {request.code} not supported{why}"
    return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def busy() -> Command:
    """Return the response to a request that there is no room for."""
    return Command.response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")


def remark_of(error: Exception) -> str:
    """Return the remark that names an unexpected error."""
    return f"{type(error).__name__}: {error}"
