"""Codes 25, 26, 28, 306, 315, 329."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.admin.broker import AdminBroker
from broker.admin.runtime_info import Backlog, RuntimeInfo
from remoting.bodies.registry import BrokerStatsData, DataVersion, KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.registry import ViewBrokerStatsDataRequestHeader
from runtime.config import parse_properties
from runtime.version import RELEASE
from tests.parts.broker_parts import Parts, broker_parts

CONF = "# the broker\nbrokerName = broker-a\nunknownKey=stays\nfileReservedTime=72\n"


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    conf = tmp_path / "broker.conf"
    conf.write_text(CONF)
    async with broker_parts(tmp_path, brokerConfigPath=str(conf)) as made:
        info = RuntimeInfo(made.config, made.store, made.stats, made.clock, lambda: Backlog(5, 7), dict)
        made.handlers = AdminBroker(made.config, made.store, made.stats, info, made.clock).table()
        yield made


async def update(parts: Parts, text: str) -> tuple[int, str]:
    answer = await parts.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    return answer.code, answer.remark or ""


async def test_a_change_takes_effect_and_is_written_without_disturbing_the_file(parts: Parts, tmp_path: Path) -> None:
    assert await update(parts, "fileReservedTime=48\nautoCreateTopicEnable=false\n") == (0, "")
    assert parts.config.store.fileReservedTime == 48
    assert not parts.config.broker.autoCreateTopicEnable
    assert parts.config_changes == [frozenset({"fileReservedTime", "autoCreateTopicEnable"})]
    assert (tmp_path / "broker.conf").read_text() == (
        "# the broker\nbrokerName = broker-a\nunknownKey=stays\nfileReservedTime=48\nautoCreateTopicEnable=false\n"
    )


async def test_R18_the_scrub_goes_at_a_changed_rate_without_a_restart(parts: Parts) -> None:
    assert await update(parts, "scrubBytesPerSecond=1000") == (0, "")
    assert parts.config.store.scrubBytesPerSecond == 1000


async def test_unknown_keys_are_ignored_and_named_in_the_log(
    parts: Parts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await update(parts, "noSuchKey=1\nfileReservedTime=24"))[0] == ResponseCode.SUCCESS
    assert (await update(parts, "noSuchKey=1"))[0] == ResponseCode.SUCCESS
    assert "noSuchKey" in caplog.text
    assert "noSuchKey" not in (tmp_path / "broker.conf").read_text()
    assert parts.config.store.fileReservedTime == 24


async def test_keys_of_what_is_not_there_are_refused_by_name_and_nothing_is_changed(
    parts: Parts, tmp_path: Path
) -> None:
    code, remark = await update(parts, "fileReservedTime=24\nlockInStrictMode=true\nenablePopBatchAck=true")
    assert code == ResponseCode.INVALID_PARAMETER
    assert "lockInStrictMode=true" in remark
    assert "enablePopBatchAck=true" in remark
    assert parts.config.store.fileReservedTime == 72
    assert (tmp_path / "broker.conf").read_text() == CONF


async def test_rocketmqs_keys_without_effect_are_taken_and_kept_in_the_file(parts: Parts, tmp_path: Path) -> None:
    code, remark = await update(parts, "sendMessageThreadPoolNums=8\nfileReservedTime=24\nlockInStrictMode=false")
    assert code == ResponseCode.SUCCESS
    assert remark == "lockInStrictMode, sendMessageThreadPoolNums: has no effect on this broker"
    written = parse_properties((tmp_path / "broker.conf").read_text())
    assert (written["sendMessageThreadPoolNums"], written["fileReservedTime"]) == ("8", "24")
    assert parts.config.store.fileReservedTime == 24


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList"])
async def test_black_list(parts: Parts, tmp_path: Path, key: str) -> None:
    code, remark = await update(parts, f"{key}=x\nfileReservedTime=1")
    assert code == ResponseCode.NO_PERMISSION
    assert key in remark
    assert parts.config.store.fileReservedTime == 72
    assert (tmp_path / "broker.conf").read_text() == CONF


async def test_the_black_list_can_be_longer(tmp_path: Path) -> None:
    async with broker_parts(tmp_path, configBlackList="configBlackList;brokerPermission") as parts:
        info = RuntimeInfo(parts.config, parts.store, parts.stats, parts.clock, lambda: Backlog(0, 0), dict)
        parts.handlers = AdminBroker(parts.config, parts.store, parts.stats, info, parts.clock).table()
        assert (await update(parts, "brokerPermission=4"))[0] == ResponseCode.NO_PERMISSION
        assert (await update(parts, "fileReservedTime=4"))[0] == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "text",
    [
        "brokerName=other",
        "listenPort=one",
        "mappedFileSizeCommitLog=4096",
        "fileReservedTime=soon",
        "brokerRole=SLAVE",
        "flushDiskType=SYNC_FLUSH",
        "deleteWhen=25",
        "bindAddress=10.9.9.9",
        "listenPort=10999",
        "httpBindAddress=0.0.0.0",
        "httpHostNames=evil.example",
        "migrateAuthFromV1Enabled=true",
        "plainAclFolder=/tmp",
        "brokerIP1=10.9.9.9",
        "haMasterAddress=10.9.9.9:10912",
        "raftSecretFile=/tmp/mine",
        "raftTlsCaFile=/tmp/mine",
        "dLegerPeers=n0-10.9.9.9:40911",
        "enableDLegerCommitLog=true",
        "fileReservedTime=0",
        "fileReservedTime=00",
        "fileReservedTime=-1",
        "inSyncReplicas=2",
        "minInSyncReplicas=2\ninSyncReplicas=2",
        "enableAutoInSyncReplicas=true",
        "namesrvAddr=10.9.9.9:9876",
        "flushIntervalCommitLog=100000000",
        "flushCommitLogThoroughInterval=100000000",
        "flushCommitLogLeastPages=1000000",
        "kernelSyncEnable=false",
        "checkCRCOnRecover=false",
        "diskSpaceCleanForciblyRatio=30",
        "diskSpaceCleanForciblyRatio=84",
    ],
)
async def test_what_cannot_be_changed(parts: Parts, tmp_path: Path, text: str) -> None:
    before = parts.config.values()
    code, remark = await update(parts, text)
    assert code == ResponseCode.INVALID_PARAMETER
    assert text.partition("=")[0] in remark
    assert parts.config.values() == before
    assert (tmp_path / "broker.conf").read_text() == CONF


async def test_everything_is_deleted_at_once_only_when_it_is_meant(parts: Parts, tmp_path: Path) -> None:
    code, remark = await update(parts, "fileReservedTime=0")
    assert (code, "add force=true" in remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert await update(parts, "fileReservedTime=0\nforce=true") == (0, "")
    assert parts.config.store.fileReservedTime == 0
    assert "force" not in (tmp_path / "broker.conf").read_text()


async def test_files_go_before_they_expire_on_an_emptier_disk_only_when_it_is_meant(parts: Parts) -> None:
    code, remark = await update(parts, "diskSpaceCleanForciblyRatio=30")
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark.startswith("diskSpaceCleanForciblyRatio=30 deletes files before they expire")
    assert remark.endswith("add force=true if that is meant")
    # Nor in two steps.
    assert await update(parts, "cleanFileForciblyEnable=false") == (0, "")
    assert await update(parts, "diskSpaceCleanForciblyRatio=30") == (0, "")
    code, remark = await update(parts, "cleanFileForciblyEnable=true")
    assert (code, "add force=true" in remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert await update(parts, "cleanFileForciblyEnable=true\nforce=true") == (0, "")
    assert parts.config.store.forcibly_ratio == 0.3
    # Back again harms nobody.
    assert await update(parts, "diskSpaceCleanForciblyRatio=85") == (0, "")


async def test_what_counts_at_a_start_only_is_written_for_it(parts: Parts, tmp_path: Path) -> None:
    code, remark = await update(parts, "maxMessageSize=1000000\nfileReservedTime=24")
    assert code == ResponseCode.SUCCESS
    assert remark == "maxMessageSize: takes effect at the next start of the broker"
    assert parts.config.store.maxMessageSize == 4 * 1024 * 1024
    assert parts.config.store.fileReservedTime == 24
    assert "maxMessageSize=1000000" in (tmp_path / "broker.conf").read_text()


async def test_keys_of_transactions_timers_and_recalls_count_at_once(parts: Parts) -> None:
    text = "recallMessageEnable=true\ntransactionTimeOut=1234\nrejectTransactionMessage=true\ntimerMaxDelaySec=60"
    assert await update(parts, text) == (0, "")
    broker, store = parts.config.broker, parts.config.store
    assert (broker.recallMessageEnable, broker.transactionTimeOut, broker.rejectTransactionMessage) == (
        True,
        1234,
        True,
    )
    assert store.timerMaxDelaySec == 60


async def test_without_a_file_nothing_waits_for_a_start(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        info = RuntimeInfo(parts.config, parts.store, parts.stats, parts.clock, lambda: Backlog(0, 0), dict)
        parts.handlers = AdminBroker(parts.config, parts.store, parts.stats, info, parts.clock).table()
        code, remark = await update(parts, "maxMessageSize=1000000\nfileReservedTime=24")
        assert code == ResponseCode.INVALID_PARAMETER
        assert "maxMessageSize" in remark
        assert parts.config.store.fileReservedTime == 72, "all or nothing"
        assert (await update(parts, "fileReservedTime=24"))[0] == ResponseCode.SUCCESS


async def test_bytes_that_are_no_text(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"\xff\xfe")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    answer = await parts.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b\n" * 100_000)
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_value_in_force_may_be_sent_again(parts: Parts) -> None:
    assert (await update(parts, "brokerName=broker-a\nfileReservedTime=24"))[0] == ResponseCode.SUCCESS


async def test_a_file_that_cannot_be_written_is_told(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, values: dict[str, str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.admin.broker.edit_file", full)
    code, remark = await update(parts, "fileReservedTime=24")
    assert code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in remark


async def test_the_configuration_is_shown_with_its_version(parts: Parts) -> None:
    answer = await parts.ask(RequestCode.GET_BROKER_CONFIG)
    values = parse_properties(bytes(answer.body).decode())
    assert values["brokerName"] == "broker-a"
    assert values["autoCreateTopicEnable"] == "true"
    assert values["mappedFileSizeCommitLog"] == str(1024 * 1024)
    before = DataVersion.decode(answer.ext["version"].encode())
    await update(parts, "fileReservedTime=24")
    answer = await parts.ask(RequestCode.GET_BROKER_CONFIG)
    assert parse_properties(bytes(answer.body).decode())["fileReservedTime"] == "24"
    assert json.loads(answer.ext["version"])["counter"] == before.counter + 1


KEYS = (
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "putLatency99",
    "putLatency999",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "brokerActive",
    "brokerVersionDesc",
    "brokerVersion",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToCommit",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
)


async def test_runtime_info_has_every_key_that_tools_read(parts: Parts) -> None:
    stored = parts.put("T", 0, b"x" * 100)
    parts.stats.got("g", "T", 1, 100)
    parts.clock.advance(90_061)
    table = KVTable.decode((await parts.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    pools = [
        f"{pool}ThreadPoolQueue{what}"
        for pool in ("send", "pull", "litePull", "query", "ack")
        for what in ("Size", "Capacity", "HeadWaitTimeMills")
    ]
    assert set(KEYS) | set(pools) <= set(table)
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["commitLogMaxOffset"] == str(stored.end)
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "1"
    assert table["putMessageAverageSize"] == str(float(stored.size))
    assert table["earliestMessageTimeStamp"] == str(stored.store_timestamp)
    assert 0.0 < float(table["commitLogDiskRatio"]) <= 1.0
    for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
        assert len([float(rate) for rate in table[name].split(" ")]) == 3
    for name in ("timerReadBehind", "pageCacheLockTimeMills", "sendThreadPoolQueueHeadWaitTimeMills"):
        assert int(table[name]) == 0
    assert table["parkedPulls"] == "7"
    assert table["raftmqVersion"] == RELEASE


async def test_stats_data(parts: Parts) -> None:
    parts.put("T", 0)
    header = ViewBrokerStatsDataRequestHeader(statsName="TOPIC_PUT_NUMS", statsKey="T")
    data = BrokerStatsData.decode((await parts.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)).body)
    assert data.statsDay is not None
    assert data.statsDay.sum == 1
    header = ViewBrokerStatsDataRequestHeader(statsName="TOPIC_PUT_NUMS", statsKey="none")
    answer = await parts.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_cleaning_by_hand_removes_only_what_has_expired(parts: Parts) -> None:
    for _ in range(5):
        parts.put("T", 0, b"x" * 400_000)
    for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
        assert (await parts.ask(code)).code == ResponseCode.SUCCESS
    assert parts.store.min_offset("T", 0) == 0
