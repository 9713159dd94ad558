"""The keys of the classic modes: master and slaves, RocketMQ's names, units and defaults unless said otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.config import ConfigError

ASYNC_MASTER = "ASYNC_MASTER"
SYNC_MASTER = "SYNC_MASTER"
SLAVE = "SLAVE"
# What a member of a Raft group calls its role when it is asked as if it were one of these.
RAFT = "RAFT"
ROLES = (ASYNC_MASTER, SYNC_MASTER, SLAVE)
# haListenPort: no port for slaves is opened.
HA_CLOSED = -1
# What a slave can take in one frame: RocketMQ's reads into a buffer of 4 MiB.
BATCH_BYTES_MAX = 4 * 1024 * 1024 - 1024


# Without slots: a class can have only one parent with them, and BrokerConfig has RaftKeys.
@dataclass(frozen=True)
class ClassicKeys:
    """The part of BrokerConfig about master and slaves; times in milliseconds, sizes in bytes."""

    brokerRole: str = ASYNC_MASTER
    haListenPort: int = 0  # 0: listenPort+1 (a free one when listenPort is 0); -1, ours: closed
    haSecretFile: str = ""  # ours: what master and slaves must know of one another; RocketMQ's own cannot answer
    haMasterAddress: str = ""  # where a slave finds the master's HA port; empty: as the NameServer says
    haSendHeartbeatInterval: int = 5000
    haHousekeepingInterval: int = 20_000  # silence after which either side closes the connection
    haTransferBatchSize: int = 32 * 1024
    haMaxGapNotInSync: int = 256 * 1024 * 1024  # a slave further behind does not count as in sync
    slaveTimeout: int = 3000  # how long a send waits for slaves
    inSyncReplicas: int = 1  # master included; ours: 2 for a SYNC_MASTER whose file does not say
    minInSyncReplicas: int = 1  # the least that enableAutoInSyncReplicas may go down to
    enableAutoInSyncReplicas: bool = False
    haFlowControlEnable: bool = False
    maxHaTransferByteInSecond: int = 100 * 1024 * 1024  # of each slave, when haFlowControlEnable
    enableSlaveActingMaster: bool = False  # the slave with the lowest id grants queue locks while there is no master
    syncFromLastFile: bool = False  # an empty slave is sent the last file only; ours: from the first one that is kept
    slaveMetadataMs: int = 10_000  # ours: how often a slave copies the metadata (RocketMQ: every 10 s)


def check_classic(keys: ClassicKeys, broker_id: int) -> None:
    """Raise ConfigError when the keys of a broker without a Raft group cannot be used together."""
    if keys.brokerRole not in ROLES:
        raise ConfigError(f"brokerRole={keys.brokerRole}: it takes {', '.join(ROLES)}")
    if keys.brokerRole == SLAVE and broker_id <= 0:
        raise ConfigError(f"brokerId={broker_id}: a slave (brokerRole=SLAVE) takes a number above 0")
    if keys.brokerRole != SLAVE and broker_id != 0:
        raise ConfigError(f"brokerId={broker_id}: a master takes 0; a slave says brokerRole=SLAVE")
    if not HA_CLOSED <= keys.haListenPort <= 65535:
        raise ConfigError(f"haListenPort={keys.haListenPort}: it takes a port, 0 for listenPort+1, -1 for none")
    if not 1 <= keys.haTransferBatchSize <= BATCH_BYTES_MAX:
        raise ConfigError(f"haTransferBatchSize={keys.haTransferBatchSize}: it takes 1 to {BATCH_BYTES_MAX}")
    for key in _POSITIVE:
        if getattr(keys, key) <= 0:
            raise ConfigError(f"{key}={getattr(keys, key)}: it takes a number above 0")
    if keys.minInSyncReplicas > keys.inSyncReplicas:
        raise ConfigError("minInSyncReplicas is above inSyncReplicas: it is the least that is still waited for")
    if keys.brokerRole == SYNC_MASTER and keys.haListenPort == HA_CLOSED and keys.inSyncReplicas > 1:
        raise ConfigError("haListenPort=-1: a SYNC_MASTER waits for slaves, and none could come")


_POSITIVE = (
    "haSendHeartbeatInterval",
    "haHousekeepingInterval",
    "haMaxGapNotInSync",
    "slaveTimeout",
    "inSyncReplicas",
    "minInSyncReplicas",
    "maxHaTransferByteInSecond",
    "slaveMetadataMs",
)


def classic_words(keys: ClassicKeys) -> Iterator[str]:
    """Yield what a master says at start about what it waits for."""
    if keys.brokerRole != SYNC_MASTER:
        return
    if keys.inSyncReplicas == 1:
        yield (
            "SYNC_MASTER with inSyncReplicas=1 waits for no slave: sends are acknowledged when this broker alone has "
            "them; set 2 or more"
        )
        return
    auto = f", down to {keys.minInSyncReplicas} when fewer are in sync" if keys.enableAutoInSyncReplicas else ""
    yield (
        f"a send is acknowledged when {keys.inSyncReplicas} of the brokers have it, this one included{auto} "
        f"(inSyncReplicas; RocketMQ 5 takes 1 when it is not set, and waits for none): 11 when fewer are in sync, 12 "
        f"when they take longer than {keys.slaveTimeout} ms"
    )
