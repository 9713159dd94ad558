"""Every example runs as a user would run it, against `raftmq local`'s cluster."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.local import LocalCluster
from raftmq.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("examples")) as running:
        yield running


def run(program: Path, cluster: LocalCluster) -> str:
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "NAMESRV_ADDR": cluster.address, "FLIGHTS": "1500"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    tested = {"quickstart_async.py", "quickstart_sync.py", "flights_by_origin.py"}
    with_spark = {"spark_wordcount.py"}  # tests/spark/test_examples_spark.py
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested | with_spark


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", ["quickstart_async.py", "quickstart_sync.py"])
def test_quickstart(name: str, cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / name, cluster)
        assert output.count("sent ") == 10
        assert output.count("received hello") == 10
        assert output.endswith("all 10 came back\n")


@pytest.mark.timeout(100)
def test_flights_by_origin(cluster: LocalCluster) -> None:
    output = run(EXAMPLES / "flights_by_origin.py", cluster)
    assert "replayed 1,500 flights from 3 airports" in output
    assert re.search(r"consumer 1 counted [1-9]", output), output
    assert re.search(r"consumer 2 counted [1-9]", output), output
    assert output.endswith("the counts agree with what was sent\n")


def test_the_program_in_the_readme_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    code = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    assert "127.0.0.1:9876" in code
    program = tmp_path / "readme.py"
    program.write_text(code.replace("127.0.0.1:9876", cluster.address))
    assert "topic='orders'" in run(program, cluster)


def test_the_commands_in_the_readme_run(cluster: LocalCluster) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert next(number for number, line in enumerate(lines, 1) if line == "make demo") < 30
    commands = [shlex.split(line)[1:] for line in lines if line.startswith(".venv/bin/raftmq ")]
    assert ["local", "--nodes", "3", "--dir", "./data"] in commands
    for command in commands:
        if command[0] == "local":
            continue
        done = CliRunner().invoke(app, command, env={"NAMESRV_ADDR": cluster.address})
        assert done.exit_code == 0, (command, done.output)
