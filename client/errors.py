"""What an application can get from this library, and what it should do about it.

ClientError
├── ClientClosed       the producer or consumer is not started, or was closed
├── MessageRefused     the message can never be sent as it is (name, size, properties): mend it
├── RouteError         no NameServer answered, or none knows the topic: the text names whom was asked
├── SendBacklogFull    too many sends are unanswered: await some of them (`Producer.room`) and go on
├── RequestTimedOut    no reply came in time; `sent` tells whether somebody may have the request all the same
├── SendFailed         every attempt failed; `sent` tells whether the message may have been stored all the same
├── ConsumeError       a position, queue or subscription that cannot be used
├── ArgumentRefused    what was asked for cannot be asked, or an option used: a name, an id, a number (a ValueError too)
└── RequestFailed      a request of an AdminClient or a consumer has no good answer; `sent`: it may have taken effect
    └── RequestRefused a broker or NameServer refused it: `code` and `remark` are its own

Nothing else of a request's fate comes out of the library. What went wrong below (remoting.errors) is the `__cause__`;
RequestFailed and RequestRefused are InvokeError and ResponseError too.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from remoting.codes import ResponseCode
from remoting.errors import InvokeError, RemotingError, ResponseError

C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")


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


class RequestTimedOut(ClientError):
    """No reply to a request came in time. `sent` tells whether somebody may have got the request all the same."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class ConsumeError(ClientError):
    """A position, queue or subscription that cannot be used."""


class ArgumentRefused(ClientError, ValueError):
    """What was asked for cannot be asked as it is: a name, an id or a number; nothing was sent."""


class RequestFailed(ClientError, InvokeError):
    """A request has no good answer: nobody could be reached, or what came cannot be read. `sent`: it may have acted."""


class RequestRefused(RequestFailed, ResponseError):
    """A broker or NameServer refused a request: `code`, `remark`, `address`."""


def as_client_error(error: RemotingError) -> ClientError:
    """Return what an application is told of a request that ended with `error`."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, ResponseError):
        return RequestRefused(error.code, error.remark, error.address)
    failed = RequestFailed(str(error))
    if isinstance(error, InvokeError):
        failed.sent, failed.retriable, failed.reroute = error.sent, error.retriable, error.reroute
    return failed


# What answers of a wrong form end with.
_UNREADABLE = (LookupError, TypeError, AttributeError)


@contextlib.contextmanager
def _told_as_client_errors(call: str) -> Iterator[None]:
    try:
        yield
    except ClientError:
        raise
    except RemotingError as error:
        raise as_client_error(error) from error
    except ValueError as error:
        if not isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            raise ArgumentRefused(str(error)) from error
        raise RequestFailed(f"{call.lstrip('_')}: {type(error).__name__}: {error}") from error
    except _UNREADABLE as error:
        raise RequestFailed(f"{call.lstrip('_')}: {type(error).__name__}: {error}") from error


def with_client_errors(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine method that raises ClientErrors where a request of its own ends badly."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        work = method(*args, **kwargs)
        with _told_as_client_errors(method.__name__):
            return await work

    return call


def _generating(method: Callable[P, AsyncGenerator[R, None]]) -> Callable[P, AsyncGenerator[R, None]]:
    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[R, None]:
        with _told_as_client_errors(method.__name__):
            async with contextlib.aclosing(method(*args, **kwargs)) as work:
                async for each in work:
                    yield each

    return call


def raises_client_errors(kind: C) -> C:
    """Have the public coroutines and generators of a class raise ClientErrors where requests of theirs end badly."""
    return with_public_calls(kind, with_client_errors, _generating)


def with_public_calls(
    kind: C, of_coroutine: Callable[[Any], Callable[..., Any]], of_generator: Callable[[Any], Callable[..., Any]]
) -> C:
    """Put what these two return in the place of a class's public coroutines and generators, inherited ones too."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(method):
            setattr(kind, name, of_coroutine(method))
        elif inspect.isasyncgenfunction(method):
            setattr(kind, name, of_generator(method))
    return kind


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
