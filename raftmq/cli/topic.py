"""`raftmq topic`: topics and their queues."""

from typing import Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv, TopicArgument
from raftmq.cli.output import emit, fail, run, time_of, with_admin

app = typer.Typer(no_args_is_help=True, help="Topics and their queues.")

Queues = Annotated[int | None, typer.Option("--queues", min=1, help="Read and write queues at each broker.")]
ReadQueues = Annotated[int | None, typer.Option("--read-queues", "-r", min=1)]
WriteQueues = Annotated[int | None, typer.Option("--write-queues", "-w", min=1)]
Perm = Annotated[int | None, typer.Option("--perm", "-p", min=0, max=7, help="2 write, 4 read, 6 both.")]
Order = Annotated[bool | None, typer.Option("--order/--no-order", help="Mark it as consumed in order.")]

PERM_TEXTS = {0: "none", 2: "write", 4: "read", 6: "read, write"}
QUEUES_DEFAULT = 8
PERM_DEFAULT = 6


@app.command("list")
def list_topics(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    system: Annotated[bool, typer.Option("--system", help="Also those that belong to the system.")] = False,
    as_json: Json = False,
) -> None:
    """List the topics that the NameServers know."""
    from remoting.topics import is_system_topic

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            topics = await admin.topics(cluster or None)
            if system:
                return topics
            hidden = set(await admin.system_topics())
        return [
            topic
            for topic in topics
            # Retry and dead-letter topics (%…) and reply topics belong to groups and clusters, not to people.
            if topic not in hidden
            and not is_system_topic(topic)
            and not topic.startswith("%")
            and not topic.endswith("_REPLY_TOPIC")
        ]

    topics = run(work)
    emit(as_json, topics, ("topic",), [(topic,) for topic in topics], empty="no topics")


@app.command()
def create(
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Perm = None,
    order: Order = None,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Create a topic at every master (or at one broker); changes it where it exists already."""
    _check_name(topic)

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.create_topic(
                topic,
                read_queues=read_queues or queues or QUEUES_DEFAULT,
                write_queues=write_queues or queues or QUEUES_DEFAULT,
                perm=PERM_DEFAULT if perm is None else perm,
                order=bool(order),
                cluster=cluster or None,
                address=broker or None,
            )

    _emit_changed(topic, run(work), as_json)


@app.command()
def update(
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Perm = None,
    order: Order = None,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Change a topic that exists; what is not given stays as it is at each broker."""

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            changed: list[str] = []
            for address in await admin.masters(cluster or None, broker or None):
                now = await admin.topic_config(topic, address)
                if now is None:
                    continue
                changed += await admin.create_topic(
                    topic,
                    read_queues=read_queues or queues or now.readQueueNums,
                    write_queues=write_queues or queues or now.writeQueueNums,
                    perm=now.perm if perm is None else perm,
                    order=now.order if order is None else order,
                    address=address,
                )
            return changed

    changed = run(work)
    if not changed:
        fail(f"no broker has the topic {topic}: `raftmq topic create` makes it")
    _emit_changed(topic, changed, as_json)


@app.command()
def delete(
    topic: TopicArgument, namesrv: Namesrv = DEFAULT_NAMESRV, cluster: Cluster = "", as_json: Json = False
) -> None:
    """Delete a topic with its queues and offsets, at every broker and NameServer."""

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            if await admin.route(topic) is None:
                fail(f"the NameServers know no topic {topic}: `raftmq topic list` shows those that there are")
            return await admin.delete_topic(topic, cluster or None)

    _emit_changed(topic, run(work), as_json)


@app.command()
def route(topic: TopicArgument, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Show which brokers have a topic's queues."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            found = await admin.route(topic)
        if found is None:
            fail(f"the NameServers know no topic {topic}: `raftmq topic list` shows those that there are")
        queues = {queue.brokerName: queue for queue in found.queueDatas}
        return [
            {
                "cluster": data.cluster,
                "broker": data.brokerName,
                "id": broker_id,
                "address": address,
                "read_queues": queues[data.brokerName].readQueueNums,
                "write_queues": queues[data.brokerName].writeQueueNums,
                "perm": queues[data.brokerName].perm,
            }
            for data in found.brokerDatas
            for broker_id, address in sorted(data.brokerAddrs.items())
            if data.brokerName in queues
        ]

    brokers = run(work)
    columns = ("cluster", "broker", "id", "address", "read queues", "write queues", "permission")
    rows = [(*list(row.values())[:-1], PERM_TEXTS.get(row["perm"], row["perm"])) for row in brokers]
    emit(as_json, brokers, columns, rows, empty="no broker")


@app.command()
def status(topic: TopicArgument, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Show each queue's first and next offset, and when its last message was stored."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            stats = await admin.topic_stats(topic)
        return [
            {
                "broker": queue.brokerName,
                "queue": queue.queueId,
                "min_offset": at.minOffset,
                "max_offset": at.maxOffset,
                "last_stored": time_of(at.lastUpdateTimestamp),
            }
            for queue, at in sorted(stats.offsetTable.items())
        ]

    queues = run(work)
    columns = ("broker", "queue", "min offset", "max offset", "last stored")
    emit(as_json, queues, columns, [tuple(row.values()) for row in queues], empty="no queues")


def _check_name(topic: str) -> None:
    from remoting.topics import check_topic

    wrong = check_topic(topic)
    if wrong is not None:
        fail(wrong)


def _emit_changed(topic: str, addresses: list[str], as_json: bool) -> None:
    emit(as_json, {"topic": topic, "brokers": addresses}, ("topic", "done at"), [(topic, a) for a in addresses])
