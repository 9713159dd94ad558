"""`raftmq group`: consumer groups, their members and how far they have come."""

from typing import Annotated, Any

import typer

from raftmq.cli.group_letters import app as dead_letters
from raftmq.cli.group_offsets import clone_offset, reset_offset, skip
from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, GroupArgument, Json, Namesrv, TopicArgument
from raftmq.cli.output import emit, fail, run, time_of, with_admin

app = typer.Typer(no_args_is_help=True, help="Consumer groups.")


@app.command("list")
def list_groups(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    system: Annotated[bool, typer.Option("--system", help="Also those that belong to the system.")] = False,
    as_json: Json = False,
) -> None:
    """List consumer groups with their members and how many messages each has still to consume."""
    from remoting.topics import is_system_group

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            rows = []
            for name, config in (await admin.groups(cluster=cluster or None)).items():
                if is_system_group(name) and not system:
                    continue
                members = await admin.consumer_connection(name)
                rows.append(
                    {
                        "group": name,
                        "members": len(members.connectionSet) if members is not None else 0,
                        "lag": (await admin.consume_progress(name)).lag,
                        "consume_enabled": config.consumeEnable,
                        "retries_max": config.retryMaxTimes,
                    }
                )
        return rows

    groups = run(work)
    columns = ("group", "members", "lag", "may consume", "retries max")
    emit(as_json, groups, columns, [tuple(row.values()) for row in groups], empty="no groups")


@app.command()
def create(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    retries_max: Annotated[int, typer.Option("--retries-max", min=0, help="Before a message is a dead letter.")] = 16,
    retry_queues: Annotated[int, typer.Option("--retry-queues", min=1)] = 1,
    consume: Annotated[bool, typer.Option("--consume/--no-consume", help="Whether it may consume.")] = True,
    broadcast: Annotated[bool, typer.Option("--broadcast/--no-broadcast", help="Whether it may broadcast.")] = True,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Create a group at every master (or at one broker); changes it where it exists already."""
    from remoting.bodies.registry import SubscriptionGroupConfig
    from remoting.topics import check_group

    wrong = check_group(group)
    if wrong is not None:
        fail(wrong)
    config = SubscriptionGroupConfig(
        groupName=group,
        consumeEnable=consume,
        consumeBroadcastEnable=broadcast,
        retryQueueNums=retry_queues,
        retryMaxTimes=retries_max,
    )

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.create_group(config, cluster=cluster or None, address=broker or None)

    _emit_changed(group, run(work), as_json)


@app.command()
def delete(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    offsets: Annotated[bool, typer.Option("--offsets", help="Its offsets too.")] = False,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Delete a group's configuration."""

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            if group not in await admin.groups(cluster=cluster or None, address=broker or None):
                fail(f"no broker has the group {group}: `raftmq group list` shows those that there are")
            return await admin.delete_group(
                group, clean_offsets=offsets, cluster=cluster or None, address=broker or None
            )

    _emit_changed(group, run(work), as_json)


@app.command()
def progress(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: Annotated[str, typer.Option("--topic", "-t", help="One topic; otherwise all that it consumes.")] = "",
    as_json: Json = False,
) -> None:
    """Show how far a group has come in each queue."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            found = await admin.consume_progress(group, topic or None)
        queues = [
            {
                "topic": one.queue.topic,
                "broker": one.queue.brokerName,
                "queue": one.queue.queueId,
                "broker_offset": one.broker_offset,
                "consumer_offset": one.consumer_offset,
                "lag": one.lag,
                "consumed_up_to": time_of(one.consumed_ms),
            }
            for one in found.queues
        ]
        return {"group": group, "lag": found.lag, "tps": found.tps, "queues": queues}

    found = run(work)
    if not found["queues"]:
        fail(f"the group {group} has consumed nothing yet: it has no offsets")
    columns = ("topic", "broker", "queue", "broker offset", "consumer offset", "lag", "consumed up to")
    emit(as_json, found, columns, [tuple(row.values()) for row in found["queues"]])
    if not as_json:
        typer.echo(f"lag {found['lag']:,}, {found['tps']:.1f} messages/s")


@app.command()
def connections(group: GroupArgument, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Show a group's members that are online, and what they subscribe."""
    from remoting.codes import LanguageCode

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            found = await admin.consumer_connection(group)
        if found is None:
            fail(f"nobody of the group {group} is online")
        members = [
            {
                "client": one.clientId,
                "address": one.clientAddr,
                "language": one.language.name if isinstance(one.language, LanguageCode) else str(one.language),
                "version": one.version,
            }
            for one in found.connectionSet
        ]
        subscriptions = {topic: data.subString for topic, data in found.subscriptionTable.items()}
        return {"group": group, "members": members, "subscriptions": subscriptions}

    found = run(work)
    columns = ("client", "address", "language", "version")
    emit(as_json, found, columns, [tuple(row.values()) for row in found["members"]])
    if not as_json:
        typer.echo("subscribes: " + ", ".join(f"{t} ({e})" for t, e in sorted(found["subscriptions"].items())))


@app.command()
def mode(
    group: GroupArgument,
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    pop: Annotated[bool | None, typer.Option("--pop/--pull", help="Set it; otherwise it is shown.")] = None,
    share: Annotated[
        int, typer.Option("--share", min=0, help="With --pop: of how many other members each pops the queues; 0: all.")
    ] = 0,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Show or set whether a group pulls or pops a topic. RocketMQ's clients ask for it (clientRebalance=false).

    A PushConsumer of RaftMQ takes no queue of what is popped, and says so in its log; a SimpleConsumer pops anyway.
    """
    from remoting.bodies.registry import SetMessageRequestModeBody

    if share and not pop:
        fail("--share goes with --pop", code=2)

    async def work() -> list[str] | SetMessageRequestModeBody | None:
        async with with_admin(namesrv) as admin:
            place = {"cluster": cluster or None, "address": broker or None}
            if pop is not None:
                wanted = SetMessageRequestModeBody(group, "POP" if pop else "PULL", share, topic)
                return await admin.set_request_mode(wanted, **place)
            known = await admin.request_modes(**place)
        return next((each for each in known if (each.consumerGroup, each.topic) == (group, topic)), None)

    done = run(work)
    if done is None:
        fail(
            f"no mode is set for {group} and {topic}: defaultMessageRequestMode of the brokers counts, by default PULL"
        )
    if isinstance(done, list):
        _emit_changed(group, done, as_json)
        return
    row = {"group": group, "topic": topic, "mode": done.mode, "share": done.popShareQueueNum}
    emit(as_json, row, tuple(row), [tuple(row.values())])


def _emit_changed(group: str, addresses: list[str], as_json: bool) -> None:
    emit(as_json, {"group": group, "brokers": addresses}, ("group", "done at"), [(group, a) for a in addresses])


app.add_typer(dead_letters, name="dead-letters")
app.command("reset-offset")(reset_offset)
app.command("skip")(skip)
app.command("clone-offset")(clone_offset)
