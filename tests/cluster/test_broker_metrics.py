"""What real processes serve at /metrics: the metrics that docs/metrics.md names, no others, with values that agree."""

import asyncio
import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from chaos.host.processes import ServerProcess, classic_processes
from client.consume.litepull import LitePullConsumer
from client.message import Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from tests.cluster.process_group import leading, process_group, registered, status, until
from tests.cluster.raft_cluster import CALM
from tests.cluster.small_files import SMALL_FILES

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
SENT = 40
EVERYBODY = "All processes"
OF_ALL_BROKERS = {EVERYBODY, "Brokers"}
LAGS = ("entries", "bytes", "seconds")

Families = dict[str, Metric]


class Site:
    """A NameServer, a group of three and a master with a slave, all fed."""

    def __init__(self, namesrv: ServerProcess, members: list[ServerProcess], pair: list[ServerProcess]) -> None:
        self.namesrv = namesrv
        self.leader = members[leading(members)]
        self.followers = [member for member in members if member is not self.leader]
        self.master, self.slave = pair

    def feed(self, count: int) -> None:
        """Send to the group and to the master, one message after the other, and read them."""
        asyncio.run(self._feed(count))

    async def _feed(self, count: int) -> None:
        for group, topic in (("broker-a", "InGroup"), ("pair", "InPair")):
            queue = MessageQueue(topic, group, 0)
            async with Producer("producers", self.namesrv.address) as producer:
                for number in range(count):
                    await producer.send(Message(topic, b"%d" % number), queue=queue)
            async with LitePullConsumer("readers", self.namesrv.address) as consumer:
                await consumer.assign([queue])
                consumer.seek(queue, 0)
                async with asyncio.timeout(20):
                    read = 0
                    while read < count:
                        read += len(await consumer.poll(1.0))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("metrics")
    with process_group(folder / "group", {**SMALL_FILES, **CALM}) as (namesrv, members):
        pair = classic_processes(
            folder / "pair", 1, role="SYNC_MASTER", flush="SYNC_FLUSH", namesrv=namesrv.address,
            settings={**SMALL_FILES, "brokerName": "pair"},
        )  # fmt: skip
        try:
            for process in pair:
                process.launch()
            for process in pair:
                process.wait_ready()
            made = Site(namesrv, members, pair)
            asyncio.run(registered(namesrv.address, "broker-a", "pair"))
            made.feed(SENT)
            yield made
        finally:
            for process in pair:
                process.kill()


def scrape(process: ServerProcess) -> str:
    connection = http.client.HTTPConnection(process.host, process.http_port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert (response.status, response.getheader("Content-Type", "").split(";")[0]) == (200, "text/plain")
        return response.read().decode()
    finally:
        connection.close()


def families(process: ServerProcess) -> Families:
    return {family.name: family for family in text_string_to_metric_families(scrape(process))}


def value(found: Families, name: str, **labels: str) -> float:
    """Return the one value of a series, whatever else its labels are."""
    (only,) = (
        sample.value
        for family in found.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return only


def by_label(found: Families, name: str, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in found[name].samples}


def documented(*sections: str) -> dict[str, str]:
    """Return metric → type, of some sections of the page."""
    found: dict[str, str] = {}
    section = ""
    for line in DOCS.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif section in sections and (row := re.match(r"\| `(\w+)` \| (\w+) \|", line)):
            assert row[1] not in found, f"{row[1]} stands there twice"
            found[row[1]] = row[2]
    return found


def served(process: ServerProcess) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", scrape(process), re.MULTILINE))


def test_what_the_docs_name_is_served_and_nothing_else(site: Site) -> None:
    group = documented(*OF_ALL_BROKERS, "Members of a Raft group")
    assert served(site.leader) == group
    assert served(site.followers[0]) == group
    assert served(site.master) == documented(*OF_ALL_BROKERS, "Masters and slaves", "Masters")
    assert served(site.slave) == documented(*OF_ALL_BROKERS, "Masters and slaves", "Slaves")
    assert served(site.namesrv) == documented(EVERYBODY, "NameServers")


def test_every_section_of_the_docs_is_somebodys() -> None:
    sections = set(re.findall(r"^## (.+)$", DOCS.read_text(), re.MULTILINE))
    known = {*OF_ALL_BROKERS, "Members of a Raft group", "Masters and slaves", "Masters", "Slaves", "NameServers"}
    assert sections == known


def test_a_leader_tells_of_its_group(site: Site) -> None:
    follower_ids = {status(member)["self"] for member in site.followers}
    found: Families = {}

    def all_have_all() -> bool:
        """Whether one and the same answer says so: an entry may follow at any moment."""
        found.update(families(site.leader))
        lags = (by_label(found, f"raftmq_raft_follower_lag_{unit}", "member") for unit in LAGS)
        ends = {value(found, f"raftmq_raft_{name}_index") for name in ("durable", "last")}
        return len(ends) == 1 and not any(lag for each in lags for lag in each.values())

    until("the followers have all", all_have_all)
    leader_id = status(site.leader)["self"]
    assert by_label(found, "raftmq_raft_role", "role") == {"follower": 0, "candidate": 0, "leader": 1}
    assert by_label(found, "raftmq_raft_leader", "member") == {leader_id: 1} | dict.fromkeys(follower_ids, 0)
    assert by_label(found, "raftmq_raft_linked", "member") == dict.fromkeys({leader_id, *follower_ids}, 1)
    assert value(found, "raftmq_raft_term") >= 1
    assert value(found, "raftmq_raft_serving") == value(found, "raftmq_raft_quorum") == 1
    assert 0 < value(found, "raftmq_raft_lease_seconds") < 10
    applied, commit, durable, last = (
        value(found, f"raftmq_raft_{name}_index") for name in ("applied", "commit", "durable", "last")
    )
    assert value(found, "raftmq_raft_first_index") <= applied <= commit <= durable <= last
    assert commit > SENT
    for unit in LAGS:
        assert by_label(found, f"raftmq_raft_follower_lag_{unit}", "member") == dict.fromkeys(follower_ids, 0)
    assert all(0 <= age < 30 for age in by_label(found, "raftmq_raft_follower_heard_seconds", "member").values())
    assert value(found, "raftmq_raft_elected_total") >= 1
    assert sum(by_label(found, "raftmq_raft_elections", "reason").values()) >= 1
    assert by_label(found, "raftmq_raft_gave_way", "reason").keys() == {"disk", "clock", "other"}
    follower = families(site.followers[0])
    assert value(follower, "raftmq_raft_term") == value(found, "raftmq_raft_term")
    assert by_label(follower, "raftmq_raft_leader", "member")[leader_id] == 1
    assert value(follower, "raftmq_raft_lease_seconds") == value(follower, "raftmq_raft_serving") == 0
    assert follower["raftmq_raft_follower_lag_bytes"].samples == []


def test_counts_and_times_grow_with_what_is_sent_and_read(site: Site) -> None:
    once = ("raftmq_send_seconds_count", "raftmq_messages_in_total", "raftmq_messages_out_total")
    at_least = ("raftmq_queue_seconds_count", "raftmq_append_seconds_count", "raftmq_pull_seconds_count")
    for broker in (site.leader, site.master):
        grouped = broker is site.leader
        # One message after the other: each is an entry, written, synced and committed by itself.
        extra = ("raftmq_commit_seconds_count", "raftmq_replicate_seconds_count") if grouped else ()
        before = families(broker)
        site.feed(5)
        found = families(broker)
        growth = {name: value(found, name) - value(before, name) for name in (*once, *at_least, *extra)}
        assert [growth["raftmq_send_seconds_count"], growth["raftmq_messages_in_total"]] == [5, 5]
        assert growth["raftmq_messages_out_total"] >= 5
        assert growth["raftmq_queue_seconds_count"] == 5
        assert growth["raftmq_append_seconds_count"] >= 5
        assert growth["raftmq_pull_seconds_count"] >= 1
        if grouped:
            assert growth["raftmq_commit_seconds_count"] == 5
            assert growth["raftmq_replicate_seconds_count"] >= 5
            assert 0 < value(found, "raftmq_commit_seconds_sum") <= value(found, "raftmq_send_seconds_sum")
        assert value(found, "raftmq_fsync_seconds_count") > value(before, "raftmq_fsync_seconds_count")
        answers = [by_label(each, "raftmq_sends", "code") for each in (before, found)]
        assert answers[1]["0"] - answers[0]["0"] == 5
        topic = "InGroup" if grouped else "InPair"
        assert by_label(found, "rocketmq_messages_in", "topic")[topic] >= SENT + 5


def test_a_histogram_adds_up(site: Site) -> None:
    for family in families(site.leader).values():
        # One by topic has no series before there was anything.
        if family.type != "histogram" or not family.samples:
            continue
        within = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        assert within == sorted(within), family.name
        assert within[-1] == value({family.name: family}, f"{family.name}_count")
        assert (value({family.name: family}, f"{family.name}_sum") > 0) == (within[-1] > 0)


def test_a_master_tells_how_far_its_slave_is(site: Site) -> None:
    found: Families = {}

    def slave_has_all() -> bool:
        found.update(families(site.master))
        in_sync = value(found, "raftmq_ha_slaves_in_sync")
        return in_sync == 1 and by_label(found, "raftmq_ha_lag_bytes", "slave") == {"127.0.0.1": 0}

    until("the slave has all", slave_has_all)
    behind = families(site.slave)
    assert value(found, "raftmq_ha_fenced") == value(behind, "raftmq_ha_behind_bytes") == 0
    assert value(found, "raftmq_ha_epoch") == value(behind, "raftmq_ha_epoch")


def test_process_disk_and_ports_are_told(site: Site) -> None:
    for process in (site.leader, site.namesrv):
        before = by_label(families(process), "raftmq_frames_refused", "reason")
        connection = http.client.HTTPConnection(process.address, timeout=5)
        connection.request("GET", "/")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
        connection.close()
        found = families(process)
        refused = by_label(found, "raftmq_frames_refused", "reason")
        assert {reason: count - before[reason] for reason, count in refused.items() if count != before[reason]} == {
            "protocol": 1
        }
        assert value(found, "process_resident_memory_bytes") > 1 << 20
        assert len(by_label(found, "python_gc_collections", "generation")) == 3
    assert value(families(site.namesrv), "raftmq_connections") >= 5
    found = families(site.leader)
    assert 0 < value(found, "rocketmq_storage_disk_ratio") <= 1
    assert value(found, "raftmq_storage_disk_free_bytes") > 0
    assert value(found, "raftmq_storage_writes_refused") == 0
