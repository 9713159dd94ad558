"""A test per request code of the NameServer, by its handlers, without a socket."""

import asyncio
import zlib
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from namesrv.config import LiveNamesrvConfig, NamesrvConfig, load_namesrv_config
from namesrv.handlers import RouteHandlers
from namesrv.handlers_admin import ConfigHandlers, EpochHandlers, TopicHandlers
from namesrv.kv import KVConfig
from namesrv.routes import RouteTable
from remoting.bodies.registry import (
    BrokerMemberGroupBody,
    ClusterInfo,
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRouteData,
)
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.server import Connection
from runtime.clock import ManualClock
from runtime.config import ConfigError

BROKER = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}


async def _result(answer: Awaitable[Command]) -> Command:
    return await answer


class Peer:
    """Stands for a connection, of which handlers want the peer's name alone."""

    peer = ("10.0.0.9", 5000)


class Desk:
    """Every handler of a NameServer around one table."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.clock = ManualClock()
        self.folder = folder
        self.config = LiveNamesrvConfig(
            NamesrvConfig(
                kvConfigPath=str(folder / "kvConfig.json"), configStorePath=str(folder / "ns.properties"), **changes
            )
        )
        now = self.config.now
        self.routes = RouteTable(self.clock, topics_per_broker_max=200_000, brokers_max=100, epochs_max=200)
        kv = KVConfig(now.kv_config_path(), entries_max=now.kvEntriesMax)
        self.handlers = {
            **RouteHandlers(self.routes, kv, self.config, self.clock).table(),
            **TopicHandlers(self.routes, self.config).table(),
            **ConfigHandlers(kv, self.config).table(),
            **EpochHandlers(self.routes).table(),
        }

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """Return the answer; errors come as they are raised."""
        handler = self.handlers[code]
        answer = handler(cast("Connection", Peer()), Command.request(code, ext=ext, body=body))
        return answer if isinstance(answer, Command) else asyncio.run(_result(answer))

    def refusal(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> tuple[int, str]:
        """Return code and remark of a refusal."""
        with pytest.raises(CommandError) as refused:
            self.ask(code, ext, body)
        return int(refused.value.code), refused.value.remark

    def register(self, *topics: str, version: DataVersion | None = None, **ext: str) -> Command:
        """Register these topics in the plain form, with the checksum."""
        body = registration(*topics, version=version).encode()
        crc = str(zlib.crc32(body) & 0x7FFFFFFF)
        header = {**BROKER, "haServerAddr": "10.0.0.1:10912", "enableActingMaster": "false", "bodyCrc32": crc, **ext}
        return self.ask(103, header, body)

    def route(self, topic: str, **ext: str) -> TopicRouteData:
        """Return a topic's route."""
        return TopicRouteData.decode(self.ask(105, {"topic": topic, **ext}).body)

    def topics(self, code: int, **ext: str) -> list[str]:
        """Return the names that a list request answers."""
        return TopicList.decode(self.ask(code, ext).body).topicList


def registration(*topics: str, version: DataVersion | None = None) -> RegisterBrokerBody:
    table = {name: TopicConfig(name, 4, 4) for name in topics}
    return RegisterBrokerBody([], TopicConfigTable(version or DataVersion(1, 0, 1), topicConfigTable=table))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_every_code_of_a_nameserver_has_a_handler(desk: Desk) -> None:
    codes = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
    assert {int(code) for code in desk.handlers} == codes | {901, 904, 9121, 9122}


def test_100_to_102_and_219_keep_texts(desk: Desk) -> None:
    assert desk.ask(100, {"namespace": "ns", "key": "k", "value": "v"}).code == 0
    assert desk.ask(101, {"namespace": "ns", "key": "k"}).ext == {"value": "v"}
    assert KVTable.decode(desk.ask(219, {"namespace": "ns"}).body).table == {"k": "v"}
    assert desk.ask(102, {"namespace": "ns", "key": "k"}).code == 0
    assert desk.refusal(101, {"namespace": "ns", "key": "k"}) == (22, "No config item, Namespace: ns Key: k")
    assert desk.refusal(219, {"namespace": "ns"}) == (22, "No config item, Namespace: ns")


def test_103_takes_a_registration(desk: Desk) -> None:
    answer = desk.register("t", "u")
    assert (answer.code, answer.ext, bytes(answer.body)) == (0, {}, b"")
    assert desk.route("t").queueDatas == [QueueData("a", 6, 4, 0, 4)]


def test_103_takes_a_compressed_registration(desk: Desk) -> None:
    body = registration("t", "u").encode_compressed()
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    desk.ask(103, {**BROKER, "haServerAddr": "", "compressed": "true", "bodyCrc32": crc}, body)
    assert desk.topics(206) == ["t", "u"]


def test_103_refuses_a_body_that_is_not_what_its_checksum_says(desk: Desk) -> None:
    header = {**BROKER, "haServerAddr": "", "bodyCrc32": "12345"}
    assert desk.refusal(103, header, registration("t", "u").encode()) == (1, "crc32 not match")
    assert desk.topics(206) == []


def test_103_takes_a_registration_without_checksum_and_one_without_body(desk: Desk) -> None:
    header = {**BROKER, "haServerAddr": "", "bodyCrc32": "0"}
    desk.ask(103, header, registration("t", "u").encode())
    desk.ask(103, header)
    assert desk.topics(206) == ["t", "u"]


@pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr"])
def test_103_names_a_missing_field(desk: Desk, missing: str) -> None:
    header = {**BROKER, "haServerAddr": "x:1"}
    del header[missing]
    with pytest.raises(HeaderError, match=f"the custom field <{missing}> is null"):
        desk.ask(103, header)


def test_103_refuses_a_body_that_cannot_be_read(desk: Desk) -> None:
    for compressed in ("true", "false"):
        with pytest.raises(HeaderError):
            desk.ask(103, {**BROKER, "haServerAddr": "", "compressed": compressed}, b"garbage")


def test_103_tells_a_slave_its_master(desk: Desk) -> None:
    desk.register("t", "u")
    answer = desk.register("t", "u", brokerId="1", brokerAddr="10.0.0.2:10911")
    assert answer.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


@pytest.mark.parametrize("told", [True, False])
def test_103_is_answered_with_the_order_topics(tmp_path: Path, told: bool) -> None:
    desk = Desk(tmp_path, returnOrderTopicConfigToBroker=told)
    desk.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"})
    body = bytes(desk.register("t", "u").body)
    assert body == (b'{"table":{"t":"a:4"}}' if told else b"")


def test_103_removes_missing_topics_when_configured(tmp_path: Path) -> None:
    desk = Desk(tmp_path, deleteTopicWithBrokerRegistration=True)
    desk.register("t", "u")
    desk.register("u", "v", version=DataVersion(2, 0, 2))
    assert desk.topics(206) == ["u", "v"]


def test_103_takes_how_long_a_broker_may_be_silent(desk: Desk) -> None:
    desk.register("t", "u", heartbeatTimeoutMillis="5000")
    desk.clock.advance(6)
    assert len(desk.routes.expire()) == 1


def test_104_forgets_a_broker(desk: Desk) -> None:
    desk.register("t", "u")
    assert desk.ask(104, BROKER).code == 0
    assert desk.topics(206) == []
    assert desk.ask(104, BROKER).code == 0


def test_105_of_an_unknown_topic_has_rocketmqs_remark(desk: Desk) -> None:
    answer = desk.ask(105, {"topic": "nope"})
    assert answer.code == 17
    assert answer.remark == (
        "No topic route info in name server for the topic: nope\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_105_is_strict_json_for_every_client(desk: Desk) -> None:
    desk.register("t", "u")
    for ext in ({}, {"acceptStandardJsonOnly": "true"}, {"acceptStandardJsonOnly": "false"}):
        assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in bytes(desk.ask(105, {"topic": "t", **ext}).body)


@pytest.mark.parametrize("enabled", [True, False])
def test_105_carries_the_order_configuration_when_enabled(tmp_path: Path, enabled: bool) -> None:
    desk = Desk(tmp_path, orderMessageEnable=enabled)
    desk.register("t", "u")
    desk.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"})
    assert desk.route("t").orderTopicConf == ("a:4" if enabled else None)
    assert desk.route("u").orderTopicConf is None


def test_105_stays_within_a_zone(desk: Desk) -> None:
    desk.register("t", "u", __ZONE_NAME="east")
    desk.register("t", "u", __ZONE_NAME="west", brokerName="b", brokerAddr="10.0.0.2:10911")
    assert len(desk.route("t").brokerDatas) == 2
    assert len(desk.route("t", __ZONE_NAME="west").brokerDatas) == 2
    (group,) = desk.route("t", __ZONE_NAME="west", __ZONE_MODE="true").brokerDatas
    assert (group.brokerName, group.zoneName) == ("b", "west")


def test_105_waits_for_service_when_configured(tmp_path: Path) -> None:
    desk = Desk(tmp_path, needWaitForService=True, waitSecondsForService=45)
    desk.register("t", "u")
    code, remark = desk.refusal(105, {"topic": "t"})
    assert code == 1
    assert remark.startswith("name server not ready")
    desk.clock.advance(45)
    assert desk.route("t").brokerDatas


def test_105_shows_acting_masters_when_supported(tmp_path: Path) -> None:
    desk = Desk(tmp_path, supportActingMaster=True)
    desk.register("t", "u", brokerId="1", enableActingMaster="true")
    assert desk.route("t").brokerDatas[0].brokerAddrs == {0: "10.0.0.1:10911"}


def test_106_and_901_tell_clusters_and_members(desk: Desk) -> None:
    assert bytes(desk.ask(106).body) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    desk.register("t", "u")
    info = ClusterInfo.decode(desk.ask(106).body)
    assert info.clusterAddrTable == {"C": ["a"]}
    assert info.brokerAddrTable["a"].brokerAddrs == {0: "10.0.0.1:10911"}
    group = BrokerMemberGroupBody.decode(desk.ask(901, {"clusterName": "C", "brokerName": "a"}).body)
    assert group.brokerMemberGroup.brokerAddrs == {0: "10.0.0.1:10911"}


def test_205_and_327_change_write_permission(desk: Desk) -> None:
    desk.register("t", "u")
    assert desk.ask(205, {"brokerName": "a"}).ext == {"wipeTopicCount": "2"}
    assert desk.route("t").queueDatas[0].perm == 4
    desk.register("t", "u")
    assert desk.route("t").queueDatas[0].perm == 4
    assert desk.ask(327, {"brokerName": "a"}).ext == {"addTopicCount": "2"}
    assert desk.route("t").queueDatas[0].perm == 6
    assert desk.ask(205, {"brokerName": "unknown"}).ext == {"wipeTopicCount": "0"}


def test_206_224_304_list_topics(desk: Desk) -> None:
    desk.register("t", "u")
    assert desk.topics(206) == ["t", "u"]
    assert desk.topics(224, cluster="C") == ["t", "u"]
    assert desk.topics(224, cluster="unknown") == []
    answer = desk.ask(304)
    assert bytes(answer.body) == b'{"brokerAddr":"10.0.0.1:10911","topicList":["C","a"]}'


def test_311_to_313_list_unit_topics(desk: Desk) -> None:
    body = registration("unit", "sub", "plain")
    topics = body.topicConfigSerializeWrapper.topicConfigTable
    topics["unit"].topicSysFlag, topics["sub"].topicSysFlag = 3, 2
    desk.ask(103, {**BROKER, "haServerAddr": ""}, body.encode())
    assert desk.topics(311) == ["unit"]
    assert desk.topics(312) == ["sub", "unit"]
    assert desk.topics(313) == ["sub"]


def test_lists_can_be_switched_off(tmp_path: Path) -> None:
    desk = Desk(tmp_path, enableTopicList=False, enableAllTopicList=False)
    for code in (206, 224, 311, 312, 313):
        assert desk.refusal(code, {"cluster": "C"}) == (1, "disable")
    assert desk.topics(304) == []


def test_216_and_217_delete_and_add_a_topic(desk: Desk) -> None:
    desk.register("t", "u")
    route = TopicRouteData(queueDatas=[QueueData("a", 6, 2, 0, 2)])
    assert desk.ask(217, {"topic": "new"}, route.encode()).code == 0
    assert desk.topics(206) == ["new", "t", "u"]
    assert desk.ask(216, {"topic": "new", "clusterName": "unknown"}).code == 0
    assert desk.ask(216, {"topic": "t", "clusterName": "C"}).code == 0
    assert desk.ask(216, {"topic": "u"}).code == 0
    assert desk.topics(206) == ["new"]


def test_318_and_319_change_and_show_the_configuration(desk: Desk) -> None:
    assert desk.ask(318, body=b"orderMessageEnable=true\nunknownKey=1\n").code == 0
    text = bytes(desk.ask(319).body).decode()
    assert "orderMessageEnable=true\n" in text
    assert "listenPort=9876\n" in text
    assert (desk.folder / "ns.properties").read_text() == "orderMessageEnable=true\n"
    desk.ask(318, body=b"enableTopicList=false")
    assert (desk.folder / "ns.properties").read_text() == "enableTopicList=false\norderMessageEnable=true\n"


def test_318_keeps_rocketmqs_keys_that_have_no_effect_in_the_file(desk: Desk) -> None:
    assert desk.ask(318, body=b"orderMessageEnable=true\nclientRequestThreadPoolNums=9\ntls.enable=false\n").code == 0
    kept = "clientRequestThreadPoolNums=9\norderMessageEnable=true\ntls.enable=false\n"
    assert (desk.folder / "ns.properties").read_text() == kept


WHERE = ("listenPort", "bindAddress", "httpBindAddress", "httpPort", "httpEnable", "httpHostNames", "adminAllowFrom")


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList", "enableTopicList", *WHERE])
def test_318_refuses_what_is_on_the_black_list(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, configBlackList="configBlackList;enableTopicList")
    refused = desk.refusal(318, body=f"orderMessageEnable=true\n{key}=1\n".encode())
    assert refused == (16, "Can not update config in black list.")
    assert not desk.config.now.orderMessageEnable


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"orderMessageEnable=perhaps", "orderMessageEnable"),
        (b"scanNotActiveBrokerInterval=0", "scanNotActiveBrokerInterval"),
        (b"enableControllerInNamesrv=true", "controller"),
        (b"orderMessageEnable=true\ntls.config.file=/a", "tls.config.file=/a"),
        (b"\xff", "UTF-8"),
    ],
)
def test_318_refuses_values_that_cannot_be_used(desk: Desk, body: bytes, reason: str) -> None:
    code, remark = desk.refusal(318, body=body)
    assert code == 1
    assert reason in remark
    assert not (desk.folder / "ns.properties").exists()


def test_322_tells_whether_to_register_anew(desk: Desk) -> None:
    version = DataVersion(1, 0, 1)
    unknown = desk.ask(322, BROKER, version.encode())
    assert (unknown.ext, bytes(unknown.body)) == ({"changed": "true"}, b"")
    desk.register("t", "u")
    same = desk.ask(322, BROKER, version.encode())
    assert same.ext == {"changed": "false"}
    assert DataVersion.decode(same.body) == version
    newer = desk.ask(322, BROKER, DataVersion(2, 0, 1).encode())
    assert newer.ext == {"changed": "true"}
    assert DataVersion.decode(newer.body) == version


def test_904_keeps_a_broker_alive(desk: Desk) -> None:
    desk.register("t", "u")
    desk.clock.advance(100)
    assert desk.ask(904, BROKER).code == 0
    desk.clock.advance(100)
    assert desk.routes.expire() == []


def test_configuration_keys_are_rocketmqs_and_unknown_ones_are_named(tmp_path: Path) -> None:
    config, unknown = load_namesrv_config(
        {"listenPort": "19876", "needWaitForService": "true", "serverWorkerThreads": "8", "listenport": "1"}
    )
    assert (config.listenPort, config.needWaitForService, unknown) == (19876, True, ["listenport"])
    assert config.http_port(19876) == 19976
    assert NamesrvConfig(listenPort=0).http_port(40000) == 0
    assert NamesrvConfig(httpPort=8080).http_port(9876) == 8080


@pytest.mark.parametrize(
    "values",
    [
        {"listenPort": "65536"},
        {"listenPort": "65500"},
        {"waitSecondsForService": "-1"},
        {"notifyMinBrokerIdChanged": "true"},
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        load_namesrv_config(values)
