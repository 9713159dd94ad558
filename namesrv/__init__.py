"""The NameServer: which topics live on which brokers, in memory, told by the brokers themselves.

NameServers never talk to one another. Every broker registers its whole topic table with each of them, at start, every
30 s and at once on a change; clients ask any of them for a topic's route and take the next one when it does not answer.
A broker that is silent for 120 s, or whose connection closes, is forgotten; the highest epoch of its name is not. What
is lost with the process comes back with the next registrations; only the KV configuration (order topics, tools'
settings) is kept on disk.

    server.py     the process: builds every part, holds the table request code → handler, the scan, the HTTP face
    handlers.py   registration and routes: a request in, the table asked, the answer out
    handlers_admin.py   what administrators ask: lists, permissions, KV and server configuration, epochs
    routes.py     RouteTable: the tables themselves, pure state with an injected clock
    topic_tables.py     topics by broker name, and the memory that they take
    epochs.py     what outlives the brokers: the highest epoch of each name, and who belonged to it
    lists.py      what can be read from the tables: topic lists, cluster information
    kv.py         the KV configuration and its file
    status.py     what the HTTP face shows
    config.py     namesrv.conf's keys, and the configuration in force

Tables (RocketMQ's names): topicQueueTable, kept by broker name so that a registration or a lost broker touches one
dictionary; brokerAddrTable; brokerLiveTable; clusterAddrTable; filterServerTable.

Limits, and what happens there: topics of a broker (topicsPerBrokerMax) and the bytes that they take (brokerBytesMax, of
all routeBytesMax), brokers, their names and clusters (brokersMax), KV entries (kvEntriesMax, kvCharactersMax): the
request is answered with SYSTEM_ERROR (1), a remark that names the key, and nothing is changed.
Names whose epoch is remembered (epochsMax): the one without a broker that was heard of longest ago is forgotten.
"""
