"""The HTTP face over a real store: metrics under RocketMQ's names, pages of state, readiness."""

import errno
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest

import broker.admin.metrics
from broker.admin.http import BrokerHttp
from broker.admin.metrics import BrokerFigures, Counted
from broker.admin.runtime_info import Backlog
from broker.replication import SendTimes
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.compiled.door import COMPILED
from runtime.clock import ManualClock
from runtime.figures import Figure
from runtime.gaps import LoopGaps
from runtime.metrics import Metrics
from runtime.timings import Timings
from runtime.version import RELEASE
from tests.parts.broker_parts import Parts, Peer, broker_parts
from tests.parts.raft_parts import SetRole

COMMON = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


def series(name: str, **labels: str) -> str:
    """A series as Prometheus' text names it: labels in order of their names."""
    text = ",".join(f'{key}="{value}"' for key, value in sorted({**COMMON, **labels}.items()))
    return f"{name}{{{text}}}"


class ModeOf:
    """A mode as the pages see it: a member's with a role, a master's without."""

    def __init__(self, face: "Face", role: SetRole | None) -> None:
        self._face, self._role = face, role
        self.pages: dict[str, Callable[[], dict[str, object]]] = {}
        if role is not None:
            self.pages["/v1/raft"] = lambda: {"role": "LEADER", "term": role.term}

    def label(self) -> str:
        return "ASYNC_MASTER" if self._role is None else "LEADER" if self._role.leads else "FOLLOWER"

    def clock_apart(self) -> str:
        return self._face.clock_apart

    def measures(self) -> list[Figure]:
        return []


class Face:
    """The face that is asked, and what makes it not ready."""

    def __init__(self, parts: Parts, role: SetRole | None = None) -> None:
        self.parts = parts
        self.reason: str | None = None
        self.clock_apart = ""
        self.unsupported: dict[tuple[str, str], float] = {}
        self.answers: dict[int, int] = {}
        self.sends, self.pulls = SendTimes(), Timings()
        self.gaps = LoopGaps(parts.clock)
        context, mode = parts.context(role), ModeOf(self, role)
        counted = Counted(
            lambda: Backlog(11, 3),
            lambda: iter(self.unsupported.items()),
            self.gaps,
            list,
            self.answers,
            self.sends,
            self.pulls,
        )
        figures, metrics = BrokerFigures(context, parts.tables, mode, counted), Metrics()
        metrics.show(figures.figures, figures.common)
        pages = BrokerHttp(
            context,
            parts.tables,
            mode,
            lambda: Backlog(11, 3),
            lambda: self.reason,
            lambda: {"listen": "127.0.0.1:10911"},
            self.gaps,
            metrics,
        )
        self.http = pages.face()

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.http.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def metrics(self) -> dict[str, float]:
        _, text = await self.get("/metrics")
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}


@pytest.fixture
async def face(tmp_path: Path) -> AsyncIterator[Face]:
    async with broker_parts(tmp_path) as parts:
        made = Face(parts)
        await made.http.start("127.0.0.1", 0)
        yield made
        await made.http.close()
        made.gaps.close()


async def test_readiness_says_why_not(face: Face) -> None:
    assert (await face.get("/readyz"))[0] == 200
    face.reason = "recovering"
    status, text = await face.get("/readyz")
    assert status == 503
    assert "recovering" in text
    assert (await face.get("/healthz"))[0] == 200


async def test_what_is_asked_for_in_vain_is_counted(face: Face) -> None:
    name = series("rocketmq_unsupported_requests_total", feature="transactions", request_code="37")
    assert name not in await face.metrics()
    face.unsupported["transactions", "37"] = 2
    assert (await face.metrics())[name] == 2
    face.unsupported["transactions", "37"] = 5
    assert (await face.metrics())[name] == 5


async def test_metrics_follow_the_counters(face: Face) -> None:
    parts = face.parts
    parts.topics.update(TopicConfig("T", 1, 1))
    size = parts.put("T", 0).size
    parts.stats.got("g", "T", 1, 100)
    found = await face.metrics()
    assert found[series("rocketmq_broker_permission")] == 6
    assert found[series("rocketmq_messages_in_total", topic="T", is_system="false")] == 1
    parts.put("T", 0)
    found = await face.metrics()
    assert found[series("rocketmq_messages_in_total", topic="T", is_system="false")] == 2
    assert found[series("rocketmq_throughput_in_total", topic="T", is_system="false")] == 2 * size
    assert found[series("rocketmq_storage_size")] == 2 * size
    assert found[series("rocketmq_processor_watermark", processor="send")] == 11
    assert any(name.startswith("rocketmq_messages_out_total") and 'consumer_group="g"' in name for name in found)
    parts.stats.forget_topic("T")
    assert not any('topic="T"' in name for name in await face.metrics())
    parts.put("T", 0)
    found = await face.metrics()
    assert found[series("rocketmq_messages_in_total", topic="T", is_system="false")] == 1


async def test_R18_what_was_found_damaged_is_shown(face: Face) -> None:
    parts = face.parts
    parts.topics.update(TopicConfig("T", 1, 1))
    parts.put("T", 0)
    parts.store._verifier.note(4711, "a body that does not match its CRC")
    shown = orjson.loads((await face.get("/v1/status"))[1])["integrity"]
    assert shown["damaged"] == [{"position": 4711, "reason": "a body that does not match its CRC"}]
    assert (shown["damagedFound"], shown["scrubBytesPerSecond"]) == (1, parts.config.store.scrubBytesPerSecond)
    found = await face.metrics()
    assert found[series("raftmq_storage_damage_found_total")] == found[series("raftmq_storage_damaged_places")] == 1
    assert found[series("raftmq_storage_scrubbed_bytes_total")] == 0
    assert series("raftmq_storage_scrub_position") in found
    assert found[series("raftmq_repaired_bytes_total")] == found[series("raftmq_repair_left_bytes")] == 0


async def test_what_runs_is_told(face: Face) -> None:
    shown = orjson.loads((await face.get("/v1/status"))[1])
    assert (shown["raftmqVersion"], shown["compiled"]) == (RELEASE, COMPILED)
    labels = f'version="{RELEASE}"'
    assert any(labels in name and value == 1 for name, value in (await face.metrics()).items() if "build_info" in name)


async def test_who_may_reach_it_is_told(face: Face) -> None:
    live = face.parts.config
    live.broker = replace(live.broker, bindAddress="127.0.0.1")
    assert orjson.loads((await face.get("/v1/status"))[1])["exposed"] is None
    live.broker = replace(live.broker, bindAddress="0.0.0.0")
    assert "whoever reaches 0.0.0.0 may" in orjson.loads((await face.get("/v1/status"))[1])["exposed"]
    live.broker = replace(live.broker, authenticationEnabled=True, tlsServerCertPath="c", tlsServerKeyPath="k")
    assert "TLS is not enforced" in orjson.loads((await face.get("/v1/status"))[1])["exposed"]
    live.broker = replace(live.broker, tlsServerMode="enforcing")
    assert orjson.loads((await face.get("/v1/status"))[1])["exposed"] is None


async def test_how_long_the_loop_was_held_up_is_shown(face: Face) -> None:
    face.gaps.close()
    clock = face.parts.clock
    assert isinstance(clock, ManualClock)
    clock.advance(0.01 + 0.08)
    face.gaps._beat()
    shown = orjson.loads((await face.get("/v1/status"))[1])["loopGaps"]
    assert shown == {"longestMs": 80, "longestLatelyMs": 80, "over50Ms": 1, "last": [{"at": clock.now_ms(), "ms": 80}]}
    found = await face.metrics()
    assert found[series("raftmq_loop_gap_longest_seconds")] == pytest.approx(0.08)
    assert found[series("raftmq_loop_gap_seconds_count")] == 1
    assert found[series("raftmq_loop_gap_seconds_bucket", le="0.05")] == 0
    assert found[series("raftmq_loop_gap_seconds_bucket", le="0.1")] == 1


async def test_a_full_disk_is_counted(face: Face) -> None:
    name = series("raftmq_storage_writes_refused")
    assert (await face.metrics())[name] == 0
    changes, reserve = series("raftmq_storage_writability_changes_total"), series("raftmq_storage_reserve_bytes")
    assert (await face.metrics())[reserve] > 0
    face.parts.store.tables_full(OSError(errno.ENOSPC, "No space left on device"))
    found = await face.metrics()
    assert (found[name], found[changes], found[reserve]) == (1, 1, 0)
    face.parts.store.tables_full(None)
    found = await face.metrics()
    assert (found[name], found[changes]) == (0, 2)
    assert found[reserve] > 0


async def test_lag_and_its_limit(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = face.parts
    parts.topics.update(TopicConfig("T", 1, 1))
    for _ in range(3):
        parts.put("T", 0)
    parts.offsets.assign("g", "T", 0, 1)
    parts.offsets.assign("h", "T", 0, 3)
    parts.offsets.assign("h", "gone", 0, 3)
    lags = {name: value for name, value in (await face.metrics()).items() if "consumer_lag_messages" in name}
    assert sorted(lags.values()) == [0, 2]
    monkeypatch.setattr(broker.admin.metrics, "PAIR_SERIES_MAX", 1)
    found = await face.metrics()
    assert len([name for name in found if "consumer_lag_messages" in name]) == 1
    assert found[series("raftmq_series_omitted", of="lag")] == 1


async def test_a_thousand_topics_have_no_more_series_than_the_bound(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in (("TOPIC", 20), ("PAIR", 30), ("CLIENT", 5)):
        monkeypatch.setattr(broker.admin.metrics, f"{name}_SERIES_MAX", bound)
    parts = face.parts
    for number in range(20):
        parts.stats.put(f"T{number}", 1, 10)
    for number in range(30):
        parts.stats.got("g", f"T{number}", 1, 10)
    before = await face.metrics()
    for number in range(1000):
        parts.stats.put(f"T{number}", 1, 10)
        parts.stats.got("g", f"T{number}", 1, 10)
        parts.stats.got("h", f"T{number}", 1, 10)
        parts.join(Peer(number), f"c{number}", f"g{number}", "T0")
    found = await face.metrics()
    clients = [name for name in found.keys() - before.keys() if "_connections" in name]
    assert len(clients) <= 2 * 5
    assert found.keys() - set(clients) == before.keys()
    omitted = {of: found[series("raftmq_series_omitted", of=of)] for of in ("topic", "consumed", "consumers")}
    assert omitted == {"topic": 980, "consumed": 1970, "consumers": 995}
    assert found[series("raftmq_messages_in_total")] == 1020
    assert found[series("raftmq_messages_out_total")] == 2030


async def test_answers_are_counted_by_codes_that_are_known(face: Face) -> None:
    assert (await face.metrics())[series("raftmq_sends_total", code="0")] == 0
    face.answers.update({0: 7, 14: 2, 4711: 1, 4712: 1})
    found = {name: value for name, value in (await face.metrics()).items() if name.startswith("raftmq_sends_total")}
    assert found == {
        series("raftmq_sends_total", code=code): count for code, count in (("0", 7), ("14", 2), ("other", 2))
    }


async def test_times_are_histograms(face: Face) -> None:
    face.sends.send.add(0.004, times=12)
    face.pulls.add(0.0002)
    face.parts.topics.update(TopicConfig("T", 1, 1))
    face.parts.put("T", 0)
    found = await face.metrics()
    assert found[series("raftmq_send_seconds_bucket", le="0.005")] == found[series("raftmq_send_seconds_count")] == 12
    assert found[series("raftmq_send_seconds_bucket", le="0.0025")] == 0
    assert found[series("raftmq_pull_seconds_count")] == found[series("raftmq_append_seconds_count")] == 1


async def test_connections_are_counted_by_group_and_language(face: Face) -> None:
    face.parts.join(Peer(1), "a", "g", "T")
    face.parts.join(Peer(2), "b", "g", "T")
    found = await face.metrics()
    consumers = {name: value for name, value in found.items() if "consumer_connections" in name}
    assert list(consumers.values()) == [2]
    assert 'language="JAVA"' in next(iter(consumers))
    assert [value for name, value in found.items() if "producer_connections" in name] == [2]


async def test_pages_of_state(face: Face) -> None:
    parts = face.parts
    parts.topics.update(TopicConfig("T", 1, 2, 4))
    parts.groups.update(SubscriptionGroupConfig("g"))
    stored = parts.put("T", 0)
    parts.join(Peer(), "c", "g", "T")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{face.http.port}") as session:
        async with session.get("/v1/status") as response:
            status = await response.json()
        async with session.get("/v1/topics") as response:
            topics = await response.json()
        async with session.get("/v1/groups") as response:
            groups = await response.json()
    assert (status["broker"], status["role"], status["ready"]) == ("broker-a", "ASYNC_MASTER", True)
    assert status["positions"]["written"] == stored.end
    assert status["store"]["queues"] == 1
    assert (status["store"]["flushDiskType"], status["store"]["syncedBy"]) == ("ASYNC_FLUSH", "thread")
    assert status["addresses"] == {"listen": "127.0.0.1:10911"}
    assert status["traffic"]["parkedPulls"] == 3
    assert topics["total"] == len(parts.topics.tables)
    row = next(row for row in topics["topics"] if row["topic"] == "T")
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"], row["system"]) == (1, 2, 4, False)
    row = next(row for row in groups["groups"] if row["group"] == "g")
    assert (row["clients"], row["subscriptions"]) == (["c"], {"T": "TagA"})


async def test_a_member_of_a_group_shows_its_role_and_the_group(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        role = SetRole()
        role.set(4, "n1")
        face = Face(parts, role)
        await face.http.start("127.0.0.1", 0)
        try:
            status, raft = await face.get("/v1/status"), await face.get("/v1/raft")
            role.set(5, "n0")
            later = await face.get("/v1/status")
        finally:
            await face.http.close()
    assert orjson.loads(raft[1]) == {"role": "LEADER", "term": 4}
    shown = [orjson.loads(text) for _, text in (status, later)]
    assert [(each["role"], each["brokerId"], each["term"]) for each in shown] == [("LEADER", 0, 4), ("FOLLOWER", 2, 5)]


async def test_R17_a_clock_that_is_apart_is_said_and_counted(face: Face) -> None:
    name = series("raftmq_clock_apart")
    assert (await face.metrics())[name] == 0
    face.clock_apart = "this member's clock is 80 h ahead"
    assert (await face.metrics())[name] == 1
    assert orjson.loads((await face.get("/v1/status"))[1])["clockApart"] == face.clock_apart


async def test_a_broker_alone_has_no_page_of_a_group(face: Face) -> None:
    assert (await face.get("/v1/raft"))[0] == 404
