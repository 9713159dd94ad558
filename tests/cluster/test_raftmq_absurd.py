"""Whatever is typed, it is a sentence and never a trace: commands with absurd values for each of their parameters."""

import asyncio
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import runtime.loop
from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError, ServerProcess
from raftmq.cli.main import main
from tests.cluster.absurdities import COMMANDS, command_lines, make_files

# A command that is busy for so long has taken what it was given.
BUSY_S = 0.15


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("absurd")) as running:
        yield running


@pytest.fixture
def typist(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A folder of odd files, an environment with a cluster, and nothing that takes long: no servers."""
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.address)
    monkeypatch.setenv("HOME", str(tmp_path))

    def not_here(*_: object, **__: object) -> NoReturn:
        raise ProcessError("no server is started here")

    def stopped(*_: object, **__: object) -> NoReturn:
        raise OSError("no server is started here")

    def shortly(main: Coroutine[Any, Any, object]) -> object:
        async def at_most() -> object:
            async with asyncio.timeout(BUSY_S):
                return await main

        return asyncio.run(at_most())

    monkeypatch.setattr(ServerProcess, "launch", not_here)
    monkeypatch.setattr("broker.main.run_broker", stopped)
    monkeypatch.setattr("namesrv.server.run_namesrv", stopped)
    monkeypatch.setattr("chaos.runs.tiers.probe", list)
    monkeypatch.setattr("pipeline.judge.why_no_spark", lambda: "no session is started here")
    monkeypatch.setattr(runtime.loop, "run", shortly)
    # A command sets up logging for its process, and here that is everybody's.
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield monkeypatch
    root.setLevel(level)
    root.handlers[:] = handlers


def said(words: list[str], typist: pytest.MonkeyPatch) -> str:
    """Type a command line; return what is wrong with how it ended."""
    typist.setattr(sys, "argv", ["raftmq", *words])
    typist.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            main()
        except SystemExit:
            pass
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "a trace" if "Traceback" in out.getvalue() + err.getvalue() else ""


def test_a_body_may_be_any_bytes(typist: pytest.MonkeyPatch) -> None:
    assert said(["send", "absurd_bytes", "a\udcffb"], typist) == ""


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_trace_for_what_a_user_may_type(name: str, typist: pytest.MonkeyPatch) -> None:
    wrong = {" ".join(words): found for words in command_lines(name) if (found := said(words, typist))}
    assert wrong == {}
