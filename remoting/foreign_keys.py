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
    Harmless(
        "a certificate that is shown is always verified, and a server's own is the one at tls.server.certPath",
        "tls.server.authClient tls.test.mode.enable",
    ),
)

LACKING = (
    Lacking(
        "TLS has its keys in this file, not in one of its own",
        "tls.config.file=/etc/rocketmq/tls.properties tls.enable=false",
    ),
    Lacking("SOCKS proxies are not available", "socksProxyConfig={}"),
)
