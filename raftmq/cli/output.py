"""How commands speak: tables for people, JSON for machines, errors in one line, exit codes that scripts can trust.

Exit codes: 0 done; 1 it failed (the line on standard error says why and what to do); 2 the command line is wrong;
130 interrupted; 141 whoever read the output has closed it.
"""

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import orjson
import typer

from raftmq.extras import lacking

if TYPE_CHECKING:
    from client.admin.client import AdminClient

T = TypeVar("T")

FAILED = 1
INTERRUPTED = 130
READER_GONE = 128 + signal.SIGPIPE
JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2


def fail(text: str, code: int = FAILED) -> NoReturn:
    """End the command with one line on standard error."""
    typer.echo(f"raftmq: {text}", err=True)
    raise typer.Exit(code)


def print_json(value: object) -> None:
    """Print a value as JSON; bytes as text, objects by their fields."""
    typer.echo(orjson.dumps(value, option=JSON_OPTIONS, default=_plain).decode())


def print_json_line(value: object) -> None:
    """Print a value as one line of JSON, for streams of records."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=_plain).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
    """Print rows under their columns; numbers to the right, `empty` when there is no row."""
    from rich.console import Console
    from rich.table import Table

    if not rows:
        typer.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for place, column in enumerate(columns):
        numeric = all(isinstance(row[place], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console = Console()
    # A pipe has no width: a table that is cut at 80 columns would lose what scripts look for.
    console.width = console.width if console.is_terminal else 10_000
    console.print(table)


def emit(
    as_json: bool, value: object, columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing"
) -> None:
    """Print `value` as JSON, or `rows` as a table."""
    if as_json:
        print_json(value)
    else:
        print_table(columns, rows, empty=empty)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the command's coroutine; what can be expected to go wrong becomes one line and exit code 1."""
    from runtime.loop import run as run_loop

    with one_line_errors():
        return run_loop(work())


def with_admin(namesrv: str) -> "AdminClient":
    """Return an administrator's client, to be used with ``async with``."""
    from client.admin.client import AdminClient

    return AdminClient(namesrv)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the errors that users meet into one line; others keep their trace, for they are bugs."""
    from client.errors import ClientError
    from remoting.errors import RemotingError
    from runtime.config import ConfigError

    try:
        yield
    except BrokenPipeError:
        # Who read the output has seen enough (`| head`): that is no error to tell anybody of.
        _nobody_reads()
        raise typer.Exit(READER_GONE) from None
    except (ClientError, RemotingError, ConfigError, OSError) as error:
        fail(f"{str(error) or type(error).__name__}{_advice(error)}")
    except UnicodeError as error:
        # An argument, a file or standard input, in whatever else than the UTF-8 that all of this is.
        fail(f"this is no text in UTF-8: {error}")
    except ModuleNotFoundError as error:
        line = lacking(error.name, sys.argv[1:])
        if line is None:
            raise
        fail(line)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def parse_settings(settings: Sequence[str] | None) -> dict[str, str]:
    """Read ``key=value`` arguments; ends the command when one is none."""
    values = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            fail(f"--set {setting}: it takes key=value", code=2)
        values[key.strip()] = value.strip()
    return values


def text_of(body: bytes, limit: int = 200) -> str:
    """Return a body as people can read it, cut at `limit` characters."""
    text = body.decode("utf-8", errors="backslashreplace")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(body)} bytes)"


def time_of(timestamp_ms: int) -> str:
    """Return a timestamp in local time, ISO 8601 with milliseconds; - when there is none."""
    if timestamp_ms <= 0:
        return "-"
    from datetime import UTC, datetime

    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def _nobody_reads() -> None:
    """Let what is still buffered go nowhere, instead of failing once more when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _advice(error: BaseException) -> str:
    from remoting.errors import ConnectError

    if isinstance(error, ConnectError):
        return " (is it running? -n or NAMESRV_ADDR tells the NameServer's address; `raftmq local` starts a cluster)"
    return ""


def _cell(value: object) -> Any:
    from rich.text import Text

    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    # Text, because names and bodies may hold what rich would take for markup.
    return Text("-" if value is None or value == "" else str(value))


def _plain(value: object) -> object:
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(f"{type(value).__name__} has no JSON form")
