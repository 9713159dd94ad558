"""Keys of RocketMQ's broker and store that a broker of ours knows and does not honour.

With the fields of BrokerConfig and StoreConfig these are all keys that RocketMQ 5.3 and 5.5 have; a test compares. What
stands with a default here is refused at start, and at run time, when a file asks for anything else.
"""

from remoting import foreign_keys
from runtime.knownkeys import Harmless, KnownKeys, Lacking

_HARMLESS = (
    *foreign_keys.HARMLESS,
    Harmless(
        "they tune thread pools and their queues: one event loop serves all requests, pendingBytesMax bounds sends",
        """
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
        litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
        queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        loadBalanceProcessorThreadPoolNums heartbeatThreadPoolNums recoverThreadPoolNums endTransactionThreadPoolNums
        sendThreadPoolQueueCapacity putThreadPoolQueueCapacity litePullThreadPoolQueueCapacity
        ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
        clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity
        endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity
        waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue asyncSendEnable
        maxAsyncPutMessageRequests putMessageTimeout osPageCacheBusyTimeOutMills transferMsgByHeap
        enableFastChannelEventProcess
        """,
    ),
    Harmless(
        "they tune RocketMQ's locks and its statistics",
        """
        useReentrantLockWhenPutMessage topicQueueLockNum spinLockCollisionRetreatOptimalDegree useABSLock
        debugLockEnable commercialBaseCount commercialSizePerMsg accountStatsEnable accountStatsPrintZeroValues
        maxStatsIdleTimeInMinutes enableDetailStat autoDeleteUnusedStats isolateLogEnable printChannelGroups
        printChannelGroupsMinNum enablePopLog popConsumerKVServiceLog enableLitePopLog enableScheduleMessageStats
        diskFallRecorded estimateAccumulation maxConsumeQueueScan sampleCountThreshold sampleSteps
        useStaticSubscription enableLogConsumeQueueRepeatedlyBuildWhenRecover
        """,
    ),
    Harmless(
        "they tune how RocketMQ's store maps, allocates, deletes, flushes and recovers its files; here queues and "
        "index follow the log, and are built again from it",
        """
        flushCommitLogTimed deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval flushLeastPagesWhenWarmMapedFile
        warmMapedFileEnable flushConsumeQueueLeastPages flushIntervalConsumeQueue flushConsumeQueueThoroughInterval
        messageIndexSafe writeWithoutMmap enableAsyncReput recheckReputOffsetFromCq enableRunningFlagsInFlush
        travelCqFileNumWhenGetMessage correctLogicMinOffsetSleepInterval correctLogicMinOffsetForceInterval
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage dataReadAheadEnable enableBuildConsumeQueueConcurrently
        batchDispatchRequestThreadPoolNums putConsumeQueueDataByFileChannel enableAcceleratedRecovery
        recoverConcurrently commitLogRecoverMaxNum checkCommitLogOffsetOnRecover sharedByteBufferNum
        accessMessageInMemoryHotRatio enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked
        """,
    ),
    Harmless(
        "they tune the files and threads of RocketMQ's timer wheel; here the index of timer messages follows the log, "
        "and is built again from it, and a recall always names its topic",
        """
        mappedFileSizeTimerLog timerFlushIntervalMs timerGetMessageThreadNum timerPutMessageThreadNum
        timerEnableDisruptor timerEnableCheckMetrics timerCheckMetricsWhen timerSkipUnknownError timerWarmEnable
        timerEnableRetryUntilSuccess timerMetricSmallThreshold timerProgressLogIntervalMs timerWheelSnapshotFlush
        timerWheelSnapshotIntervalMs appendTopicForTimerDeleteKey
        """,
    ),
    Harmless(
        "RocketMQ itself does not read them",
        """
        highSpeedMode flushConsumerOffsetHistoryInterval cleanOfflineBrokerInterval cleanSwapedMapInterval
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum mappedFileSwapEnable
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum dispatchCqThreads
        dispatchCqCacheNum dispatchFromSenderThread enableCleanExpiredOffset maxBatchDeleteFilesNum
        maxSlaveResendLength maxTopicLength pullBatchMaxMessageCount putMsgIndexHightWater recordGetMessageResult
        """,
    ),
    Harmless(
        "they tune jobs between RocketMQ's own processes",
        """
        sendHeartbeatTimeoutMillis brokerHeartbeatInterval brokerNotActiveTimeoutMillis updateNameServerAddrPeriod
        syncBrokerMemberGroupPeriod loadBalancePollNameServerInterval forwardTimeout compatibleWithOldNameSrv
        skipPreOnline enableSplitMetadata splitMetadataSize enableSingleTopicRegister consumerOffsetUpdateVersionStep
        delayOffsetUpdateVersionStep maxChecksumRange enableBatchPush subscriptionExpiredTimeout totalReplicas
        """,
    ),
    Harmless(
        "whatever they say, consumers learn of changes at once, producers are registered, and topics of mixed types "
        "are taken",
        "realTimeNotifyConsumerChange enableRegisterProducer enableMixedMessageType transactionMetricFlushInterval",
    ),
    Harmless(
        "users and policies are kept in config/auth.json of the store, and all of them in memory: there is nothing to "
        "refresh, and nothing that expires",
        """
        configName clusterName authConfigPath userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond
        aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond
        """,
    ),
    Harmless(
        "of effect only with enableConsumeQueueExt or enableCalcFilterBitMap=true, which are refused",
        """
        expectConsumerNumUseFilter maxErrorRateOfBloomFilter mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt
        """,
    ),
    Harmless("there is nothing to clean: the filters of groups are kept with their members", "filterDataCleanTimeSpan"),
    Harmless(
        "of effect only with enableControllerMode=true, which is refused",
        """
        controllerAddr fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
        syncControllerMetadataPeriod controllerHeartBeatTimeoutMills brokerElectionPriority storePathEpochFile
        storePathBrokerIdentity haMaxTimeSlaveNotCatchup
        """,
    ),
    Harmless(
        "of effect only with another metricsExporterType than DISABLE, which is refused",
        """
        metricsOtelCardinalityLimit metricsGrpcExporterTarget metricsGrpcExporterHeader
        metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills
        metricsPromExporterPort metricsPromExporterHost metricsLabel metricsExportBatchMaxDataPoints metricsInDelta
        enableRemotingMetrics enableMessageStoreMetrics enablePopMetrics enableConnectionMetrics
        enableTransactionMetrics enableStatsMetrics enableRequestMetrics enableLagAndDlqMetrics
        """,
    ),
    Harmless(
        "of effect only with switches that are refused: transientStorePoolEnable, "
        "fetchNamesrvAddrByAddressServer, coldDataFlowControlEnable, replicasPerDiskPartition",
        """
        commitIntervalCommitLog commitCommitLogLeastPages commitCommitLogThoroughInterval transientStorePoolSize
        fastFailIfNoBufferInStorePool fetchNamesrvAddrInterval usePIDColdCtrStrategy
        cgColdReadThreshold globalColdReadThreshold timerColdDataCheckIntervalMs
        logicalDiskSpaceCleanForciblyThreshold
        """,
    ),
    Harmless(
        "of effect only with enableLmq or enableMultiDispatch=true, which are refused",
        """
        maxLmqConsumeQueueNum enableLmqStats enableLmqQuota enableLiteEventMode liteEventCheckInterval
        liteTtlCheckInterval minLiteTTl liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
        maxLiteSubscriptionCount maxClientEventCount liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
        liteLagCountMetricsEnable liteLagLatencyTopK
        """,
    ),
    Harmless(
        "of effect only with RocksDB, whose switches are refused (storeType, configManagerVersion, …RocksDBEnable)",
        """
        cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec memTableFlushIntervalMs realTimePersistRocksDBConfig
        enableRocksDBLog combineCQLoadingCQTypes combineCQPreferCQType combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQMaxExtraSearchCommitLogFiles combineCQUseRocksdbForLmq
        bottomMostCompressionTypeForConsumeQueueStore rocksdbCompressionType rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
        useSeparateStorePathForRocksdbCQ persistConsumerOffsetIncrementally transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity transWriteOriginTransHalfEnable
        timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
        timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRecallToTimeWheelEnable timerRecallToTimelineEnable
        timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity
        """,
    ),
    Harmless(
        "of effect only with messageStorePlugIn, which is refused",
        """
        tieredStorageLevel tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize
        tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredMetadataServiceProvider
        tieredBackendServiceProvider tieredStoreDeleteFileEnable tieredStoreFileReservedTime
        tieredStoreDeleteFileInterval commitLogRollingInterval commitLogRollingMinimumSize tieredStoreGroupCommit
        tieredStoreGroupCommitTimeout tieredStoreGroupCommitCount tieredStoreGroupCommitSize
        tieredStoreMaxGroupCommitCount readAheadCacheEnable readAheadMessageCountThreshold
        readAheadMessageSizeThreshold readAheadCacheExpireDuration readAheadCacheSizeThresholdRate
        tieredStoreMaxPendingLimit tieredStoreCrcCheckEnable tieredStoreFilePath objectStoreEndpoint objectStoreBucket
        objectStoreAccessKey objectStoreSecretKey
        """,
    ),
)

_LACKING = (
    *foreign_keys.LACKING,
    Lacking(
        "ACL 1.0 is not available: the broker would run without it; what plain_acl.yml says can be carried over to "
        "authenticationEnabled (docs/security.md, Coming from ACL 1.0)",
        "aclEnable=false",
    ),
    Lacking(
        "SQL92 filters look at each message: there are no bit maps, and no ConsumeQueueExt to keep them in",
        "enableCalcFilterBitMap=false enableConsumeQueueExt=false",
    ),
    Lacking("a retry topic is filtered by its own subscription only", "filterSupportRetry=false"),
    Lacking("transactions are kept in files", "transRocksDBEnable=false"),
    Lacking(
        "timer messages are always taken in and delivered, however many in a slot, and delay levels stay levels",
        """
        timerRocksDBEnable=false timerStopEnqueue=false timerStopDequeue=false timerInterceptDelayLevel=false
        timerCongestNumEachSlot=2147483647
        """,
    ),
    Lacking(
        "POP in RocksDB is not available; check points follow the log",
        """
        popPollingMapSize=100000 popPollingMapExpireTimeSeconds=600
        reviveInterval=1000 reviveMaxSlow=3 reviveScanTime=10000 enableSkipLongAwaitingAck=false
        reviveAckWaitMs=180000 enablePopBufferMerge=false popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000
        popCkMaxBufferSize=200000 popCkOffsetMaxQueueSize=20000 enablePopBatchAck=false
        popLongPollingForceNotifyInterval=800 enableNotifyBeforePopCalculateLag=true
        enableNotifyAfterPopOrderLockRelease=true initPopOffsetByCheckMsgInMem=true
        popFromRetryProbability=20
        popFromRetryProbabilityForPriority=0 priorityOrderAsc=true popConsumerFSServiceInit=true
        popConsumerKVServiceInit=false popConsumerKVServiceEnable=false popReviveMaxReturnSizePerRead=16384
        popReviveConcurrency=32 popReviveMaxAttemptTimes=16 popReviveSkipIfGroupAbsent=true
        useSeparateRetryQueue=false useMessageFilterForNotification=true maxMessageFilterNumForNotification=64
        popResponseReturnActualRetryTopic=false popInflightMessageThreshold=10000 enablePopMessageThreshold=false
        skipWhenCKRePutReachMaxTimes=false appendAckAsync=false appendCkAsync=false
        """,
    ),
    Lacking(
        "offsets of broadcasting consumers are not kept for proxies",
        "enableBroadcastOffsetStore=true|false broadcastOffsetExpireSecond=120 broadcastOffsetExpireMaxSecond=300",
    ),
    Lacking(
        "topics that are compacted are not available",
        """
        enableCompaction=true|false compactionMappedFileSize=104857600 compactionCqMappedFileSize=10485760
        compactionScheduleInternal=900000 maxOffsetMapSize=104857600 compactionThreadNum=6
        """,
    ),
    Lacking(
        "batch queues (queue.type=BatchCQ) are not available",
        "mapperFileSizeBatchConsumeQueue=13800000 searchBcqByCacheEnable=true|false",
    ),
    Lacking("light message queues and lite topics are not available", "enableLmq=false enableMultiDispatch=false"),
    Lacking(
        "controller mode is not available: a Raft group (enableDLegerCommitLog=true) elects its own leader",
        "enableControllerMode=false asyncLearner=false",
    ),
    Lacking("there is no controller's set of replicas: use inSyncReplicas", "allAckInSyncStateSet=false"),
    Lacking("queue locks are granted by one broker alone, unless it is in a Raft group", "lockInStrictMode=false"),
    Lacking("a slave acting as master forwards nothing to other brokers", "enableRemoteEscape=false"),
    Lacking("a slave begins where its own log ends", "syncMasterFlushOffsetWhenStartup=false"),
    Lacking("a slave never moves consumers", "offsetCheckInSlave=false"),
    Lacking("duplication is not available", "duplicationEnable=false"),
    Lacking(
        "broker containers are not available",
        "isInBrokerContainer=false inBrokerContainer=false isBrokerContainer=false brokerContainer=false",
    ),
    Lacking(
        "only the store in files is available",
        """
        storeType=default messageStorePlugIn= configManagerVersion=v1 useSingleRocksDBForAllConfigs=false
        rocksdbCQDoubleWriteEnable=false indexRocksDBEnable=false
        """,
    ),
    Lacking(
        "the index is written and read whenever messageIndexEnable=true",
        "indexFileReadEnable=true indexFileWriteEnable=true",
    ),
    Lacking("the transient store pool is not available", "transientStorePoolEnable=false"),
    Lacking(
        "the CommitLog is in one folder, storePathCommitLog", "readOnlyCommitLogStorePaths= storePathDLedgerCommitLog="
    ),
    Lacking("the thresholds for a full disk are the disk's, whoever shares it", "replicasPerDiskPartition=1"),
    Lacking("records carry no CRC property", "enabledAppendPropCRC=false forceVerifyPropCRC=false"),
    Lacking("a topic's name of more than 127 bytes makes a record of version 2", "autoMessageVersionOnTopicLen=true"),
    Lacking("only what is confirmed is read", "readUnCommitted=false"),
    Lacking(
        "consumers are not slowed down for being behind",
        """
        coldDataFlowControlEnable=false coldDataScanEnable=false
        coldCtrStrategyEnable=false enableNetWorkFlowControl=false
        """,
    ),
    Lacking("a broker registers with the NameServers as soon as it serves", "disappearTimeAfterStart=-1"),
    Lacking(
        "NameServers are those of namesrvAddr",
        "fetchNamesrvAddrByAddressServer=false fetchNameSrvAddrByDnsLookup=false",
    ),
    Lacking("metrics are served at /metrics of httpPort", "metricsExporterType=DISABLE"),
)

KEYS = KnownKeys(_HARMLESS, _LACKING)
