"""A NameServer and a broker group as real processes, and the official C++ client in a process beside them.

Everything runs against a single broker and against a Raft group of three.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from raftmq.bench.peers.maven import NoJava, class_path

Order = Callable[..., list[dict[str, Any]]]
PROGRAM = Path(__file__).with_name("cpp_client.py")
# The library's shutdown interrupts its threads, and ends the process when one of them is where it does not expect that.
LIBRARY_DIED = "terminate called after throwing an instance of 'boost::thread_interrupted'"


@pytest.fixture(scope="module", params=[1, 3], ids=["single", "raft"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("interop"), nodes=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    """RocketMQ's class path, brought by Maven; whoever needs it is skipped where there is no Java."""
    try:
        return class_path(tmp_path_factory.mktemp("maven"))
    except NoJava as why:
        pytest.skip(str(why))


@pytest.fixture
def cpp(cluster: LocalCluster, tmp_path: Path) -> Order:
    """Gives an order to the C++ client and returns its answer; see cpp_client.py.

    `until` returns when a client that sent one-way may end.
    """

    def order(do: str, *, until: Callable[[], object] | None = None, **fields: Any) -> list[dict[str, Any]]:
        with subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # The library writes its logs below HOME.
            env={**os.environ, "HOME": str(tmp_path)},
            text=True,
        ) as process:
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"do": do, "namesrv": cluster.address, **fields}) + "\n")
                process.stdin.flush()
                if until is not None:
                    until()
                stdout, stderr = process.communicate(timeout=180)
            except BaseException:
                process.kill()
                raise
            return answer_of(subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr))

    return order


def answer_of(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """Return what the C++ client answered: before it shut down, which it may not survive."""
    died = done.returncode == -signal.SIGABRT and LIBRARY_DIED in done.stderr
    assert done.stdout, f"the C++ client failed:\n{done.stderr[-4000:]}"
    assert done.returncode == 0 or died, f"the C++ client failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    answer: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answer
