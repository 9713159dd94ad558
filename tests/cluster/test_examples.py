"""Every example runs as a user would run it, against `raftmq local`'s cluster."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # As `raftmq local` starts it, but for recalls and filters, which are off there, and for how soon a transaction is
    # asked about.
    settings = {
        "recallMessageEnable": True,
        "enablePropertyFilter": True,
        "transactionTimeOut": 2000,
        "transactionCheckInterval": 1000,
    }
    with LocalCluster(tmp_path_factory.mktemp("examples"), broker_settings=settings) as running:
        yield running


def run(program: Path, cluster: LocalCluster, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "NAMESRV_ADDR": cluster.address, "FLIGHTS": "1500", **environment},
        capture_output=True,
        text=True,
        timeout=270,  # it ends what hangs
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    tested = {
        "quickstart_async.py",
        "quickstart_sync.py",
        "flights_by_origin.py",
        "request_reply.py",
        "idempotent_payments.py",
        "timer_messages.py",
        "unpaid_orders.py",
        "transactional_orders.py",
        "simple_consumer.py",
        "sql_filter.py",
        "orderly_orders.py",
        "replay.py",
        "dead_letters.py",
    }
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


@pytest.mark.timeout(100)
def test_sql_filter(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "sql_filter.py", cluster)
        assert set(output.splitlines()[:2]) == {"received samovar at 120", "received tray at 28"}
        assert output.endswith("of 5 offers 2 came: the brokers kept the others\n")


@pytest.mark.timeout(100)
def test_request_reply(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "request_reply.py", cluster)
        assert [line.rpartition(" ")[2] for line in output.splitlines()[:3]] == ["6", "42", "0"]
        assert "no reply: no reply to the request to topic sums came within 1 s; it was stored" in output


def test_idempotent_payments(cluster: LocalCluster) -> None:
    """Twice, while the broker is frozen until attempts have ended, with their requests in its socket, and killed."""
    for _ in range(2):
        with ThreadPoolExecutor() as threads:
            running = threads.submit(run, EXAMPLES / "idempotent_payments.py", cluster, PAYMENTS="800")
            time.sleep(1.5)
            cluster.broker.signal(signal.SIGSTOP)
            time.sleep(11.0)
            cluster.broker.signal(signal.SIGCONT)
            time.sleep(0.3)
            cluster.broker.kill()
            cluster.broker.start()
            assert running.result().endswith("paid 800, lost 0, booked twice 0\n")


def test_timer_messages(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "timer_messages.py", cluster)
        assert output.startswith("recalled one\n")
        assert re.search(r"received 'in 2 seconds', [0-9.]+ s after it was sent", output), output
        assert "received 'at a moment'" in output


@pytest.mark.timeout(100)
def test_transactional_orders(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "transactional_orders.py", cluster)
        assert "the broker asks for the order of carla: COMMIT" in output
        assert "committed the order of anna" in output
        assert "rolled back the order of ben" in output
        # Two processes write there: a line of one may end in the middle of another's.
        assert "booked the payment of anna" in output
        assert "booked the payment of carla" in output
        assert "booked the payment of ben" not in output
        assert output.endswith("what was ordered was paid, once each, and nothing else\n")


@pytest.mark.timeout(100)
def test_unpaid_orders(cluster: LocalCluster) -> None:
    for _ in range(2):
        assert run(EXAMPLES / "unpaid_orders.py", cluster) == "of 6 orders 3 were paid, 3 cancelled after 5 s\n"


@pytest.mark.timeout(100)
def test_simple_consumer(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "simple_consumer.py", cluster)
        assert output.endswith("paid 20 orders, 4 of them at the second try\n"), output


@pytest.mark.timeout(200)
def test_orderly_orders(cluster: LocalCluster) -> None:
    output = run(EXAMPLES / "orderly_orders.py", cluster)
    assert "killed one of 3 consumers when a third of the steps was done\n" in output
    assert re.search(r"\nfinished 10000 orders; \d+ steps came again, 0 out of order\n$", output), output


@pytest.mark.timeout(100)
def test_replay(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "replay.py", cluster)
        assert output == (
            "consumed 20 readings\nwould come again: 10\nconsumed the last 10 once more, and none of the others\n"
        )


@pytest.mark.timeout(100)
def test_dead_letters(cluster: LocalCluster) -> None:
    for _ in range(2):
        output = run(EXAMPLES / "dead_letters.py", cluster)
        assert sorted(output.splitlines()) == [
            "booked 4 invoices, 94 euro",
            "dead letter: 20 USD, of topic invoices",
            "dead letter: 40 USD, of topic invoices",
        ]
