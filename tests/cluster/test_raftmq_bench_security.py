"""`raftmq bench security` measures what it says: a cluster that takes nothing unsigned and nothing plain."""

import functools
import json
from pathlib import Path

import pytest

from raftmq.bench.frames import BadAnswer
from raftmq.bench.load import LoadedBroker, Sends, run_load
from raftmq.bench.security import PROTECTIONS, TOPIC, SecuredCluster, SecurityLoad
from remoting.codes import ResponseCode
from remoting.signing import Credentials
from tests.cluster.test_raftmq_cli_errors import raftmq

pytestmark = pytest.mark.timeout(120)


async def test_sends_that_lack_a_signature_a_permission_or_tls_are_refused(tmp_path: Path) -> None:
    with SecuredCluster("single", "both", tmp_path) as cluster:
        await cluster.prepare()
        measured = await cluster.sends(SecurityLoad(seconds=0.3), 64)
        assert measured.messages > 64
        assert measured.errors == {}
        target = cluster.target()
        assert cluster.user is not None
        stranger = Credentials(cluster.user.access_key, "another secret")
        for work in (Sends(TOPIC, 100), Sends(TOPIC, 100, stranger), Sends("another", 100, cluster.user)):
            found = await run_load("send", target, functools.partial(_same, work), in_flight=4, seconds=0.2)
            assert (set(found.errors), found.messages) == ({ResponseCode.NO_PERMISSION}, 0)
        with pytest.raises((BadAnswer, ConnectionError)):
            await run_load(
                "send", LoadedBroker(target.address), lambda: Sends(TOPIC, 100, cluster.user), in_flight=4, seconds=0.2
            )


def _same(work: Sends) -> Sends:
    return work


def test_the_command_over_real_brokers(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "security", "--mode", "single", "-w", "64", "--rounds", "1", "--seconds", "0.3", "--pulls", "--json",
        "--dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    kinds = [("send", 64, name) for name in PROTECTIONS] + [("pull of 32", 16, name) for name in PROTECTIONS]
    assert [(row["what"], row["in_flight"], row["protection"]) for row in told["rows"]] == kinds
    assert all(row["messages_per_s"] > 100 and row["server_cpu_us_per_message"] > 0 for row in told["rows"])
    assert {row["rounds"] for row in told["rows"]} == {1}
    assert [aim["protection"] for aim in told["aims"]] == ["signed", "stateful", "tls"]
    assert list(tmp_path.iterdir()) == []
