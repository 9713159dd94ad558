"""Keys of RocketMQ's NamesrvConfig and ControllerConfig that a NameServer of ours knows and does not honour."""

from remoting import foreign_keys
from runtime.knownkeys import Harmless, KnownKeys, Lacking

KEYS = KnownKeys(
    (
        *foreign_keys.HARMLESS,
        Harmless("RocketMQ only shows them", "productEnvName clusterTest"),
        Harmless(
            "they tune thread pools and their queues: one event loop serves all requests",
            """
            clientRequestThreadPoolNums defaultThreadPoolNums clientRequestThreadPoolQueueCapacity
            defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity
            """,
        ),
        Harmless(
            "of effect only with enableControllerInNamesrv=true, which is refused",
            """
            controllerType controllerThreadPoolNums controllerRequestThreadPoolQueueCapacity controllerDLegerGroup
            controllerDLegerPeers controllerDLegerSelfId mappedFileSize controllerStorePath electMasterMaxRetryCount
            enableElectUncleanMaster isProcessReadEvent processReadEvent notifyBrokerRoleChanged
            scanInactiveMasterInterval metricsExporterType metricsGrpcExporterTarget metricsGrpcExporterHeader
            metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills
            metricsPromExporterPort metricsPromExporterHost metricsLabel metricsInDelta jRaftElectionTimeoutMs
            jRaftScanWaitTimeoutMs jRaftSnapshotIntervalSecs jRaftGroupId jRaftServerId jRaftInitConf
            jRaftControllerRPCAddr
            """,
        ),
    ),
    (
        *foreign_keys.LACKING,
        Lacking("there is no controller: broker groups elect their own leader", "enableControllerInNamesrv=false"),
        Lacking("brokers are not told of a new lowest brokerId", "notifyMinBrokerIdChanged=false"),
    ),
)
