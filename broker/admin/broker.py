"""The broker itself: 25 and 26 configuration, 28 and 315 figures, 306 and 329 cleaning now."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from auth.quota_keys import QUOTA_KEYS
from auth.settings import AUTH_KEYS_BY_HAND, shown_config
from broker.admin.runtime_info import RuntimeInfo
from broker.reply import ok
from broker.settings.config import LiveConfig
from broker.settings.config_edit import edit_file
from broker.settings.foreign_keys import KEYS
from broker.settings.raft_keys import RaftKeys
from broker.stats import BrokerStats
from remoting.bodies.registry import DataVersion, KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from remoting.server import Connection, Handler
from runtime.clock import Clock
from runtime.config import ConfigError, format_properties, key_of, parse_properties
from runtime.tls import TlsKeys
from store.config import StoreConfig
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

# Characters of a configuration that one request may bring.
CONFIG_LENGTH_MAX = 256 * 1024
# Beside the keys, in the same lines: what is dangerous is meant.
FORCE = "force"
# Keys that nobody may change over the network, whatever configBlackList adds.
_FORBIDDEN = frozenset(
    {
        "brokerConfigPath",
        "configBlackList",
        "consumerFallbehindThreshold",
        "disableConsumeIfConsumerReadSlowly",
        "retrieveMessageFromPopRetryTopicV1",
        "rocketmqHome",
    }
)
# Keys that say who the broker is, where its files are and where it listens, what it promises of a message it has taken,
# and what its group trusts: whoever may stop and start it may change them, by hand.
_BY_HAND = (
    AUTH_KEYS_BY_HAND
    | frozenset(key_of(field) for keys in (RaftKeys, TlsKeys) for field in fields(keys))
    | frozenset(
        {
            "adminAllowFrom",
            "auditLogPath",
            "bindAddress",
            "brokerIP1",
            "brokerIP2",
            "brokerClusterName",
            "brokerName",
            "brokerId",
            "brokerRole",
            "checkCRCOnRecover",
            "enableAutoInSyncReplicas",
            "flushCommitLogLeastPages",
            "flushCommitLogThoroughInterval",
            "flushDiskType",
            "flushIntervalCommitLog",
            "haListenPort",
            "haMasterAddress",
            "haSecretFile",
            "httpAllowFrom",
            "httpBindAddress",
            "httpEnable",
            "httpHostNames",
            "httpPort",
            "inSyncReplicas",
            "kernelSyncEnable",
            "listenPort",
            "migrateAuthFromV1Enabled",
            "minInSyncReplicas",
            "namesrvAddr",
            "plainAclFolder",
            "vipPortEnable",
            "storePathRootDir",
            "storePathCommitLog",
            "mappedFileSizeCommitLog",
            "mappedFileSizeConsumeQueue",
            "maxHashSlotNum",
            "maxIndexNum",
        }
    )
)
# Keys that take effect while the broker runs. All others are written to the configuration file for the next start.
_AT_RUN_TIME = QUOTA_KEYS | frozenset(
    {
        "allowRecallWhenBrokerNotWriteable",
        "autoCreateBurst",
        "autoCreatePerSecond",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerFastFailureEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "cleanFileForciblyEnable",
        "clearRetryTopicWhenDeleteTopic",
        "compressedRegister",
        "defaultQueryMaxNum",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "enableCreateSysGroup",
        "enableIdempotentProducer",
        "enablePropertyFilter",
        "enableSplitRegistration",
        "fileReservedTime",
        "enableRetryTopicV2",
        "forceRegister",
        "haFlowControlEnable",
        "haHousekeepingInterval",
        "haMaxGapNotInSync",
        "haSendHeartbeatInterval",
        "haTransferBatchSize",
        "idempotentForAllProducers",
        "litePullMessageEnable",
        "longPollingEnable",
        "maxHaTransferByteInSecond",
        "maxMsgsNumBatch",
        "notifyConsumerIdsChangedEnable",
        "recallMessageEnable",
        "registerBrokerTimeoutMills",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "scrubBytesPerSecond",
        "shortPollingTimeMills",
        "slaveMetadataMs",
        "slaveReadEnable",
        "slaveTimeout",
        "splitRegistrationSize",
        "startAcceptSendRequestTimeStamp",
        "storeReplyMessageEnable",
        "timerMaxDelaySec",
        "timerWheelEnable",
        "traceOn",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionOpBatchInterval",
        "transactionOpMsgMaxSize",
        "transactionTimeOut",
        "useServerSideResetOffset",
        "validateSystemTopicWhenUpdateTopic",
        "waitTimeMillsInSendQueue",
    }
)


class AdminBroker:
    """Handlers about the broker itself."""

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        stats: BrokerStats,
        info: RuntimeInfo,
        clock: Clock,
        clean: Callable[..., object] | None = None,
    ) -> None:
        """`clean` does a pass of retention (MessageStore.clean), by default the store's own."""
        self._config = config
        self._store = store
        self._clean = store.clean if clean is None else clean
        self._stats = stats
        self._info = info
        self._clock = clock
        self._version = DataVersion(0, 0, clock.now_ms())
        self._editing = asyncio.Lock()

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_log,
        }

    async def update_config(self, _connection: Connection, request: Command) -> Command:
        """25: put values in force, and into the configuration file when there is one.

        Values that only count at a start, and keys of RocketMQ's that have no effect here, go into the file alone;
        the remark names them.
        """
        values = _read_values(request)
        forced = values.pop(FORCE, "") == "true"
        refused = {*_FORBIDDEN, *self._config.broker.configBlackList.split(";")} & values.keys()
        if refused:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"Can not update config in black list: {', '.join(sorted(refused))}"
            )
        now = self._config.values()
        values = {key: value for key, value in values.items() if value != _text(now.get(key))}
        if fixed := sorted(_BY_HAND & values.keys()):
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"{', '.join(fixed)}: change it in the configuration file, with the broker stopped",
            )
        async with self._editing:
            return await self._change(values, forced=forced)

    def get_config(self, _connection: Connection, _request: Command) -> Command:
        """26: every key with the value in force."""
        version = self._version.encode().decode()
        text = format_properties(shown_config(self._config.values()))
        return ok(GetBrokerConfigResponseHeader(version=version), text.encode())

    def runtime_info(self, _connection: Connection, _request: Command) -> Command:
        """28: figures of the running broker."""
        return ok(None, KVTable(table=self._info.table()).encode())

    def stats_data(self, _connection: Connection, request: Command) -> Command:
        """315: one counter over a minute, an hour and a day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        data = self._stats.view(header.statsName, header.statsKey)
        if data is None:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.statsName}> <{header.statsKey}> not exist"
            )
        return ok(None, data.encode())

    def clean_queues(self, _connection: Connection, _request: Command) -> Command:
        """306: a retention pass at once; queue and index files follow the log."""
        self._clean()
        return ok()

    def clean_log(self, _connection: Connection, _request: Command) -> Command:
        """329: a retention pass at once, whatever the hour of deleteWhen."""
        self._clean(now=True)
        return ok()

    async def _change(self, values: dict[str, str], *, forced: bool) -> Command:
        live = self._config
        # On a copy first: what waits for the next start must be good as well.
        wanted = LiveConfig(live.broker, live.store)
        try:
            unknown = wanted.update(values)
        except ConfigError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if not forced and (danger := _danger(values, live.store, wanted.store)):
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"{danger}: add {FORCE}=true if that is meant")
        if unknown:
            _log.warning("unknown configuration keys ignored: %s", ", ".join(unknown))
        known = {key: value for key, value in values.items() if key not in unknown}
        if not known:
            return ok()
        # RocketMQ's own, of no effect here: kept in the file, as RocketMQ would.
        idle = sorted(key for key in known if key in KEYS)
        later = sorted(known.keys() - _AT_RUN_TIME - set(idle))
        path = live.broker.brokerConfigPath
        if later and not path:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"{', '.join(later)}: takes effect at a start only, and there is no configuration file to keep it",
            )
        live.update({key: value for key, value in known.items() if key in _AT_RUN_TIME})
        self._version = self._version.next(self._clock.now_ms())
        shown = {key: value for key, value in known.items() if key not in idle}
        _log.info(
            "configuration changed by an administrator: %s", ", ".join([*format_properties(shown).splitlines(), *idle])
        )
        if path:
            await _write(Path(path), known)
        else:
            _log.warning("the broker was started without a configuration file: the change lasts until it stops")
        told = {"takes effect at the next start of the broker": later, "has no effect on this broker": idle}
        remark = "; ".join(f"{', '.join(keys)}: {what}" for what, keys in told.items() if keys)
        return Command.response(ResponseCode.SUCCESS, remark or None)


def _danger(values: dict[str, str], now: StoreConfig, wanted: StoreConfig) -> str:
    """Return what a change would delete that nobody has had the time to read, "" for nothing."""
    if "fileReservedTime" in values and wanted.fileReservedTime < 1:
        return f"fileReservedTime={values['fileReservedTime']} deletes every file as soon as it is full"
    if wanted.cleanFileForciblyEnable and wanted.forcibly_ratio < now.forcibly_ratio:
        key = "diskSpaceCleanForciblyRatio"
        return f"{key}={values[key]} deletes files before they expire on a disk that is less full than before"
    if wanted.cleanFileForciblyEnable and not now.cleanFileForciblyEnable:
        return "cleanFileForciblyEnable=true deletes files before they expire when the disk is full"
    return ""


async def _write(path: Path, values: dict[str, str]) -> None:
    try:
        await asyncio.to_thread(edit_file, path, values)
    except OSError as error:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"the change is in force, but cannot be written to {path}: {error}"
        ) from None


def _read_values(request: Command) -> dict[str, str]:
    if len(request.body) > CONFIG_LENGTH_MAX:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER, f"the configuration takes {len(request.body)} bytes of {CONFIG_LENGTH_MAX}"
        )
    try:
        values = parse_properties(bytes(request.body).decode())
    except UnicodeDecodeError:
        raise CommandError(ResponseCode.INVALID_PARAMETER, "the configuration is not UTF-8") from None
    for key, value in values.items():
        if not key or any(mark in key + value for mark in "\r\n\0"):
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"not a configuration key: {key!r}")
    return values


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
