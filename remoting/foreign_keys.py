"""RocketMQ's keys about connections that have no counterpart here; brokers and NameServers share them."""

from runtime.knownkeys import Harmless, Lacking

HARMLESS = (
    Harmless(
        "they tune Netty's threads and buffers: one event loop with the kernel's defaults does that here",
        """
        serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue serverSocketSndBufSize serverSocketRcvBufSize writeBufferHighWaterMark
        writeBufferLowWaterMark serverSocketBacklog serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable
        useEpollNativeSelector clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue
        clientAsyncSemaphoreValue connectTimeoutMillis channelNotActiveInterval clientChannelMaxIdleTimeSeconds
        clientSocketSndBufSize clientSocketRcvBufSize clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout
        disableCallbackExecutor disableNettyWorkerGroup maxReconnectIntervalTimeSeconds enableReconnectForGoAway
        isScanAvailableNameSrv scanAvailableNameSrv
        """,
    ),
    Harmless(
        "a stop always answers what was taken before connections close",
        "enableShutdownGracefully shutdownWaitTimeSeconds",
    ),
    Harmless("nothing is read from there", "rocketmqHome"),
)

LACKING = (
    Lacking(
        "TLS between clients, NameServers and brokers is not available",
        """
        useTLS=false tls.enable=false tls.server.mode=permissive|disabled tls.test.mode.enable=true|false
        tls.config.file=/etc/rocketmq/tls.properties tls.server.need.client.auth=none tls.server.authClient=false
        tls.server.keyPath= tls.server.keyPassword= tls.server.certPath= tls.server.trustCertPath=
        tls.client.keyPath= tls.client.keyPassword= tls.client.certPath= tls.client.authServer=false
        tls.client.trustCertPath=
        """,
    ),
    Lacking("SOCKS proxies are not available", "socksProxyConfig={}"),
)
