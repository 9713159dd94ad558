"""The broker's configuration: RocketMQ's keys and defaults, validated once, frozen.

`broker.conf` mixes the keys of several RocketMQ classes in one file: those of the broker stand in `BrokerConfig`, those
of the store in `store.config.StoreConfig`; all others that RocketMQ has in `broker/settings/foreign_keys.py`. What the
file asks for and this broker cannot do is refused at start, never ignored: a broker that silently runs in another mode
than its file says loses what the mode was chosen for.
"""

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from auth.quota_keys import QuotaKeys, check_quotas
from auth.settings import AuthKeys, check_auth, check_members
from broker.settings.foreign_keys import KEYS
from broker.settings.ha_door import HaDoor, check_ha_door, ha_door
from broker.settings.idempotent_keys import IdempotentKeys, check_idempotent
from broker.settings.pair_keys import SLAVE, SYNC_MASTER, ClassicKeys, check_classic
from broker.settings.raft_keys import RaftKeys, check_group
from remoting.admission import HTTP_KEY, check_networks
from remoting.codes import Perm
from runtime.config import ConfigError, build_config, config_values, replace_config
from runtime.tls import TlsKeys, check_tls
from store.config import SYNC_FLUSH, StoreConfig

# How RocketMQ clamps registerNameServerPeriod, in milliseconds.
REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000
# Far above what it takes to wake a processor.
BUSY_POLL_MICROS_MAX = 10_000
# A reserved address (RFC 5737): connecting a UDP socket to it sends nothing, it only picks the outgoing interface.
ROUTE_PROBE = ("192.0.2.1", 9)


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True)
class BrokerConfig(RaftKeys, ClassicKeys, IdempotentKeys, TlsKeys, AuthKeys, QuotaKeys):
    """Keys of RocketMQ's BrokerConfig and NettyServerConfig that are honoured; times are in milliseconds."""

    # Who and where.
    brokerClusterName: str = "DefaultCluster"
    brokerName: str = ""  # empty: the host's name
    brokerId: int = 0
    brokerIP1: str = ""  # address given to clients; empty: bindAddress when it is one, else the outgoing interface's
    brokerIP2: str = ""  # address of the HA port; empty: brokerIP1
    bindAddress: str = "127.0.0.1"  # RocketMQ: 0.0.0.0
    # Ours: from where administrative requests are taken, "10.0.0.5,192.168.0.0/16", "*" from everywhere; empty: from
    # this machine and the members of its Raft group, which are always among them.
    adminAllowFrom: str = ""
    # Ours: a file of JSON lines about what administrators ask and who is refused; empty: only in the process's log.
    auditLogPath: str = ""
    # At a start, users are made of the accounts of ACL 1.0's plain_acl.yml and acl/*.yml that there are none of yet.
    migrateAuthFromV1Enabled: bool = False
    plainAclFolder: str = ""  # ours: where those are; empty: $ROCKETMQ_HOME/conf, else the folder of broker.conf
    listenPort: int = 10911  # 0: a free one
    # Ours: where requests come closer together than so many microseconds, the loop looks at its sockets for so long
    # before it sleeps (runtime/busypoll.py); 0: never. Not in a Raft group, nor where there is one processor.
    busyPollMicros: int = 250
    vipPortEnable: bool = True  # ours: also listen on listenPort-2 (never when listenPort is 0)
    httpPort: int = 0  # ours: 0 means listenPort+100 (a free one when listenPort is 0)
    httpBindAddress: str = "127.0.0.1"  # ours
    # Ours: who besides this machine may ask for /metrics and /v1/…, in the form of adminAllowFrom; empty: everybody,
    # with authenticationEnabled nobody. /healthz and /readyz answer everybody.
    httpAllowFrom: str = ""
    httpEnable: bool = True  # ours
    httpHostNames: str = ""  # ours: names, separated by ';', that HTTP is asked by besides its addresses
    namesrvAddr: str = ""  # "host:port;host:port"; empty: registered nowhere
    brokerConfigPath: str = ""
    configBlackList: str = "configBlackList"
    regionId: str = "DefaultRegion"

    # What clients may do.
    brokerPermission: int = int(Perm.READ | Perm.WRITE)
    autoCreateTopicEnable: bool = True
    autoCreateSubscriptionGroup: bool = True
    enableCreateSysGroup: bool = True
    defaultTopicQueueNums: int = 8
    clusterTopicEnable: bool = True
    brokerTopicEnable: bool = True
    traceTopicEnable: bool = False
    msgTraceTopicName: str = "RMQ_SYS_TRACE_TOPIC"
    validateSystemTopicWhenUpdateTopic: bool = True
    clearRetryTopicWhenDeleteTopic: bool = True
    reviveQueueNum: int = 8
    rejectPullConsumerEnable: bool = False
    litePullMessageEnable: bool = True
    startAcceptSendRequestTimeStamp: int = 0
    traceOn: bool = True
    rejectTransactionMessage: bool = False
    storeReplyMessageEnable: bool = True
    recallMessageEnable: bool = False  # timer messages may be recalled
    allowRecallWhenBrokerNotWriteable: bool = True

    # Consumption.
    longPollingEnable: bool = True
    shortPollingTimeMills: int = 1000
    enablePropertyFilter: bool = False  # consumers may filter by SQL92
    notifyConsumerIdsChangedEnable: bool = True
    useServerSideResetOffset: bool = True
    slaveReadEnable: bool = False
    # Whether a group that has fallen so many bytes of the log behind is shut out (broker/messages/slow_readers.py).
    disableConsumeIfConsumerReadSlowly: bool = False
    consumerFallbehindThreshold: int = 16 * 1024**3
    flushConsumerOffsetInterval: int = 5000
    channelExpiredTimeout: int = 120_000
    serverChannelMaxIdleTimeSeconds: int = 120

    # POP: pops that wait, of one group and topic and in all; beyond it POLLING_FULL.
    popPollingSize: int = 1024
    maxPopPollingSize: int = 100_000
    # How retry topics are named that POP makes, %RETRY%GROUP_TOPIC or (V2) %RETRY%GROUP+TOPIC, and whether those of the
    # first form are read beside them.
    enableRetryTopicV2: bool = False
    retrieveMessageFromPopRetryTopicV1: bool = True
    # Clients that ask which queues are theirs (400): whether they are shared out among the group's members, and how a
    # group reads a topic for which nobody said it (401): PULL, or POP with the queues of so many members besides its
    # own, all with 0 and less.
    serverLoadBalancerEnable: bool = True
    defaultMessageRequestMode: str = "PULL"
    defaultPopShareQueueNum: int = -1

    # Transactions: undecided for so long, a message's producer is asked about it, in rounds so often.
    transactionTimeOut: int = 6000
    transactionCheckInterval: int = 30_000
    transactionCheckMax: int = 15  # rounds; then it goes to TRANS_CHECK_MAX_TIME_TOPIC
    # Rollbacks that nobody waits for are gathered: their offsets, at most so many bytes, at most for so long.
    transactionOpMsgMaxSize: int = 4096
    transactionOpBatchInterval: int = 3000

    # Registration.
    forceRegister: bool = True
    compressedRegister: bool = False
    # In pieces of so many topics; not where NameServers say deleteTopicWithBrokerRegistration=true.
    enableSplitRegistration: bool = False
    splitRegistrationSize: int = 800
    registerBrokerTimeoutMills: int = 24_000
    registerNameServerPeriod: int = 30_000  # clamped to 10,000..60,000

    # Limits of ours.
    pendingBytesMax: int = 64 * 1024 * 1024  # bytes taken but not yet acknowledged; beyond it sends get SYSTEM_BUSY
    # Sends that waited for their turn for longer are refused with SYSTEM_BUSY, by RocketMQ after 200 ms. Here they may
    # wait for a leader too: as long as a request may be on its way in a group.
    brokerFastFailureEnable: bool = True
    waitTimeMillsInSendQueue: int = 2500
    pullThreadPoolQueueCapacity: int = 100_000  # parked pulls; beyond it a pull is answered at once
    # Topics, and groups, that one connection (another member's, of what is forwarded) has made by using them: so many
    # at once, then so many a second (0: without a bound); of one address ten times as many at once; beyond it
    # SYSTEM_BUSY. A client with a hundred new ones is at work at once; one that never ends, however often it connects
    # anew, has filled the broker's 200,000 after five hours, not after twenty seconds.
    autoCreateBurst: int = 100
    autoCreatePerSecond: int = 10
    connectionsPerAddressMax: int = 0  # on a port, of one address; 0: 4,096, of few a quarter; beyond it: closed
    coldReadThreads: int = 4  # threads that read pages which are not in memory

    def validate(self) -> None:
        """Raise ConfigError for values that cannot be used."""
        for key in ("listenPort", "httpPort"):
            if not 0 <= getattr(self, key) <= 65535:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes a port, 0 to 65535")
        if self.enableDLegerCommitLog:
            check_group(self, self.group_name())
            check_members(self, "a member of a Raft group")
        else:
            check_classic(self, self.brokerId)
            check_ha_door(self, self.ha_door())
            if self.brokerRole == SLAVE:
                check_members(self, "a slave")
        check_auth(self)
        if self.migrateAuthFromV1Enabled and not (self.plainAclFolder or self.brokerConfigPath):
            raise ConfigError(
                "migrateAuthFromV1Enabled=true takes plainAclFolder, the folder of plain_acl.yml (or ROCKETMQ_HOME, "
                "or a configuration file beside it)"
            )
        check_quotas(self, authenticated=self.authenticationEnabled)
        check_idempotent(self)
        if self.idempotentForAllProducers and self.authenticationSendLifetimeSeconds > self.idempotentWindowSeconds:
            raise ConfigError(
                f"authenticationSendLifetimeSeconds={self.authenticationSendLifetimeSeconds}: it takes at most "
                f"idempotentWindowSeconds ({self.idempotentWindowSeconds}): what came again between them would be "
                "stored again"
            )
        check_tls(self)
        for key in _POSITIVE:
            if getattr(self, key) <= 0:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes a number above 0")
        for key in ("connectionsPerAddressMax", "autoCreatePerSecond"):
            if getattr(self, key) < 0:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes 0, or a number above")
        if not 0 <= self.busyPollMicros <= BUSY_POLL_MICROS_MAX:
            raise ConfigError(f"busyPollMicros={self.busyPollMicros}: it takes 0 to {BUSY_POLL_MICROS_MAX}")
        if self.defaultMessageRequestMode.upper() not in {"PULL", "POP"}:
            raise ConfigError(f"defaultMessageRequestMode={self.defaultMessageRequestMode}: it takes PULL or POP")
        try:
            check_networks(self.adminAllowFrom)
            check_networks(self.httpAllowFrom, HTTP_KEY)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if not 0 <= self.brokerPermission <= 15:
            raise ConfigError(f"brokerPermission={self.brokerPermission}: it takes 2 (write), 4 (read) or 6 (both)")
        for address in self.namesrv_addresses():
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) <= 65535:
                raise ConfigError(f"namesrvAddr={self.namesrvAddr}: it takes host:port, several separated by ';'")

    def namesrv_addresses(self) -> tuple[str, ...]:
        """Return the NameServers, each once, in the order of the file."""
        return tuple(dict.fromkeys(_names(self.namesrvAddr)))

    def name(self) -> str:
        """Return the broker's name: brokerName, or the host's name."""
        return self.brokerName or _host_name()

    def group_name(self) -> str:
        """Return the Raft group's name: dLegerGroup, or the broker's name."""
        return self.dLegerGroup or self.name()

    def advertised_ip(self) -> str:
        """Return the address that clients are told."""
        if self.brokerIP1:
            return self.brokerIP1
        try:
            if not ipaddress.ip_address(self.bindAddress).is_unspecified:
                return self.bindAddress
        except ValueError:
            return self.bindAddress
        return outgoing_ip()

    def ha_door(self, *, expected: bool = False) -> HaDoor:
        """Return to whom the HA port is opened; `expected`: a command has made this broker a master among others."""
        return ha_door(self, self, self.bindAddress, guarded=self.authenticationEnabled, expected=expected)

    def http_names(self) -> tuple[str, ...]:
        """Return the names that HTTP answers to, besides addresses and localhost."""
        return tuple(
            filter(None, (*_names(self.httpHostNames), self.httpBindAddress, self.bindAddress, self.brokerIP1))
        )

    def plain_acl_folder(self) -> Path:
        """Return where ACL 1.0's files are looked for, when migrateAuthFromV1Enabled asks for them."""
        return Path(self.plainAclFolder) if self.plainAclFolder else Path(self.brokerConfigPath).parent

    def auto_create_bounds(self) -> tuple[int, int]:
        """Return how many topics or groups a connection may have made at once, and how many more a second."""
        return self.autoCreateBurst, self.autoCreatePerSecond

    def register_period(self) -> float:
        """Return the seconds between two registrations."""
        return min(max(self.registerNameServerPeriod, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX) / 1000


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


_POSITIVE = (
    "consumerFallbehindThreshold",
    "defaultTopicQueueNums",
    "shortPollingTimeMills",
    "flushConsumerOffsetInterval",
    "channelExpiredTimeout",
    "serverChannelMaxIdleTimeSeconds",
    "registerBrokerTimeoutMills",
    "splitRegistrationSize",
    "pendingBytesMax",
    "waitTimeMillsInSendQueue",
    "pullThreadPoolQueueCapacity",
    "autoCreateBurst",
    "transactionTimeOut",
    "transactionCheckInterval",
    "transactionCheckMax",
    "transactionOpMsgMaxSize",
    "transactionOpBatchInterval",
    "coldReadThreads",
    "reviveQueueNum",
    "popPollingSize",
    "maxPopPollingSize",
    "shutdownForwardMs",
)


def outgoing_ip() -> str:
    """Return the address of the interface that leads out of this machine; 127.0.0.1 when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ROUTE_PROBE)
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def load_broker_config(values: Mapping[str, str]) -> tuple[BrokerConfig, StoreConfig, list[str]]:
    """Make both configurations of the texts of a broker.conf; the list names the keys that nobody knows.

    Raises ConfigError for values that do not fit and for what this broker does not have.
    """
    KEYS.refuse(_beyond_group(values, grouped=values.get("enableDLegerCommitLog", "").strip().lower() == "true"))
    broker, unknown_to_broker = build_config(BrokerConfig, _with_pair_defaults(_with_environment(values)))
    store, unknown_to_store = build_config(StoreConfig, _with_group_defaults(values, broker))
    return broker, store, _unknown(unknown_to_broker, unknown_to_store)


def _beyond_group(values: Mapping[str, str], *, grouped: bool) -> Mapping[str, str]:
    """Return what is asked for, without what every Raft group does anyhow: a majority agrees on each lock."""
    return {key: value for key, value in values.items() if not (grouped and key == "lockInStrictMode")}


def _unknown(to_broker: Iterable[str], to_store: Iterable[str]) -> list[str]:
    return sorted(key for key in set(to_broker) & set(to_store) if key not in KEYS)


def _with_environment(values: Mapping[str, str]) -> dict[str, str]:
    merged = dict(values)
    if not merged.get("namesrvAddr") and os.environ.get("NAMESRV_ADDR"):
        merged["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    if merged.get("migrateAuthFromV1Enabled", "").strip().lower() == "true" and os.environ.get("ROCKETMQ_HOME"):
        merged.setdefault("plainAclFolder", str(Path(os.environ["ROCKETMQ_HOME"]) / "conf"))
    return merged


def _with_pair_defaults(values: dict[str, str]) -> dict[str, str]:
    """Have a SYNC_MASTER wait for a slave, unless the file itself says that it need not."""
    if values.get("brokerRole", "").strip() == SYNC_MASTER:
        values.setdefault("inSyncReplicas", "2")
    return values


def _with_group_defaults(values: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """In a group an acknowledged message is on disk, unless the file itself says that it need not be."""
    merged = dict(values)
    if broker.enableDLegerCommitLog:
        merged.setdefault("flushDiskType", SYNC_FLUSH)
    return merged


class LiveConfig:
    """The configuration in force. An administrator may change it while the broker runs (code 25)."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: StoreConfig,
        on_change: Callable[[frozenset[str]], None] = lambda _keys: None,
    ) -> None:
        """`on_change` is called after a change, with the keys that changed."""
        self.broker = broker
        self.store = store
        self._on_change = on_change

    def values(self) -> dict[str, object]:
        """Return every key with its value, the broker's and the store's."""
        return {**config_values(self.store), **config_values(self.broker)}

    def update(self, values: Mapping[str, str]) -> list[str]:
        """Put new texts in force, all or none; returns the keys that are unknown. Raises ConfigError."""
        KEYS.refuse(_beyond_group(values, grouped=self.broker.enableDLegerCommitLog))
        before = self.values()
        broker, unknown_to_broker = replace_config(self.broker, values)
        store, unknown_to_store = replace_config(self.store, values)
        self.broker, self.store = broker, store
        after = self.values()
        changed = frozenset(key for key in after if after[key] != before[key])
        if changed:
            self._on_change(changed)
        return _unknown(unknown_to_broker, unknown_to_store)
