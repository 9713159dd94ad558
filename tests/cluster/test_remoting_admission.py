"""Who may administer (adminAllowFrom): real processes, asked from another address of this machine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.leader_only import CLIENT_HOST, HOP, HOP_FLAG, TERM
from chaos.host.processes import ServerProcess, broker_process, namesrv_process, raft_processes
from remoting.audit import ADMINISTRATIVE, ASKED_BY_SERVERS, CHANGES
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.admin import CreateTopicRequestHeader
from remoting.headers.registry import RegisterBrokerRequestHeader
from tests.cluster.broker_peer import v2
from tests.cluster.raft_cluster import CALM, FAST, RaftCluster, read_all
from tests.cluster.small_files import SMALL_FILES
from tests.parts.byte_peer import Peer
from tests.parts.classified import DAILY_WRITES, LOOKS

ALLOWED, STRANGER, OPERATOR = "127.0.0.1", "127.0.0.2", "127.0.0.9"
NO_CODE = 32_000
DAILY = sorted(LOOKS | DAILY_WRITES | ASKED_BY_SERVERS)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """A NameServer, a master and the one member of a Raft group, administered from ALLOWED only."""
    folder = tmp_path_factory.mktemp("admission")
    only = {"adminAllowFrom": ALLOWED}
    made = [
        namesrv_process(folder / "namesrv", settings=only),
        broker_process(folder / "master", settings={**SMALL_FILES, **only}),
        *raft_processes(folder / "group", 1, settings={**SMALL_FILES, **only}),
    ]
    try:
        for process in made:
            process.launch()
        for process in made:
            process.wait_ready()
        yield made
    finally:
        for process in made:
            process.kill()


@asynccontextmanager
async def peer_of(port: int, host: str) -> AsyncIterator[Peer]:
    """A connection that comes from one of this machine's addresses."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
    try:
        yield peer
    finally:
        await peer.close()


async def ask(port: int, request: Command, host: str = STRANGER) -> Command:
    async with asyncio.timeout(20), peer_of(port, host) as peer:
        peer.send(request)
        return await peer.receive()


def audit_lines(process: ServerProcess, asker: str) -> list[str]:
    lines = process.log.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if f" INFO audit - {asker}:" in line]


def port_of(process: ServerProcess) -> int:
    return int(process.address.rpartition(":")[2])


@pytest.mark.parametrize("code", sorted(ADMINISTRATIVE), ids=lambda code: CHANGES[code])
async def test_what_changes_something_is_refused_to_a_stranger_and_leaves_a_line(
    servers: list[ServerProcess], code: int
) -> None:
    # Another one for each: of one there are so many lines in ten seconds.
    stranger = f"127.1.{code >> 8}.{code & 255}"
    refused = 0
    # An address of its own for each: one that asks for much has a few lines only.
    stranger = f"127.0.1.{1 + sorted(ADMINISTRATIVE).index(code)}"
    for process in servers:
        answer = await ask(port_of(process), Command.request(code), stranger)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            continue
        assert answer.code == ResponseCode.NO_PERMISSION
        assert str(answer.remark).startswith(f"{stranger} may change nothing here: adminAllowFrom ")
        wanted = f" asked for {CHANGES[code]}: refused with 16 ({stranger} may"
        async with asyncio.timeout(20):
            # The answer may be here before the line.
            while not any(wanted in line for line in audit_lines(process, stranger)):
                await asyncio.sleep(0.02)
        refused += 1
    assert refused, "some server has it"


@pytest.mark.parametrize("code", DAILY)
async def test_what_clients_and_brokers_ask_for_is_refused_to_nobody(servers: list[ServerProcess], code: int) -> None:
    for process in servers:
        asked, after = Command.request(code), Command.request(NO_CODE)
        asked.opaque, after.opaque = 1, 2
        async with asyncio.timeout(20), peer_of(port_of(process), STRANGER) as peer:
            peer.send(asked, after)
            answers = [await peer.receive()]
            # Some answer later, or never: a refusal would come at once.
            while answers[-1].opaque != after.opaque:
                answers.append(await peer.receive())
        assert not [one for one in answers if "adminAllowFrom" in str(one.remark)]


async def test_a_stranger_sends_and_registers_as_ever(servers: list[ServerProcess]) -> None:
    namesrv, master, _ = servers
    sent = await ask(port_of(master), Command.request(RequestCode.SEND_MESSAGE_V2, v2("made-by-the-first-send"), b"x"))
    assert sent.code == ResponseCode.SUCCESS
    header = RegisterBrokerRequestHeader(
        brokerName="far", brokerAddr="10.0.0.1:10911", clusterName="C", haServerAddr="10.0.0.1:10912", brokerId=0
    )
    table = TopicConfigTable(DataVersion(1, 0, 1), topicConfigTable={name: TopicConfig(name, 4, 4) for name in "tu"})
    body = RegisterBrokerBody([], table).encode()
    registered = await ask(port_of(namesrv), Command.request(RequestCode.REGISTER_BROKER, header, body))
    assert registered.code == ResponseCode.SUCCESS


async def test_who_is_allowed_is_asked_from_where_he_comes_only(servers: list[ServerProcess]) -> None:
    for process in servers:
        answer = await ask(port_of(process), Command.request(RequestCode.DELETE_TOPIC_IN_BROKER), ALLOWED)
        assert answer.code != ResponseCode.NO_PERMISSION


async def test_no_request_opens_the_door(servers: list[ServerProcess]) -> None:
    namesrv, *brokers = servers
    opens = b"adminAllowFrom=*"
    for broker in brokers:
        answer = await ask(port_of(broker), Command.request(RequestCode.UPDATE_BROKER_CONFIG, None, opens), ALLOWED)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "adminAllowFrom" in str(answer.remark)
    answer = await ask(port_of(namesrv), Command.request(RequestCode.UPDATE_NAMESRV_CONFIG, None, opens), ALLOWED)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")


def create(topic: str, **fields: str) -> Command:
    """A request for a topic; with fields of a forwarded one, it says that it is one."""
    header = CreateTopicRequestHeader(
        topic=topic, defaultTopic="TBW102", readQueueNums=4, writeQueueNums=4, perm=6, topicFilterType="SINGLE_TAG"
    )
    request = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, ext=fields)
    if fields:
        request.flag |= HOP_FLAG
    return request


async def test_in_a_group_the_member_that_is_asked_judges_and_nobody_passes_as_a_member(tmp_path: Path) -> None:
    # Members reach one another from 127.0.0.1, which is not among those that are named: that they are members counts.
    cluster = RaftCluster(tmp_path, 3, {**FAST, **CALM, "adminAllowFrom": OPERATOR})
    try:
        await cluster.start()
        leader = await cluster.leader()
        follower = next(member for member in cluster.ids if member != leader)
        ports = [cluster.brokers[member].port for member in (follower, leader)]
        for number, port in enumerate(ports):
            asked = await ask(port, create(f"by-operator-{number}"), OPERATOR)
            assert (asked.code, asked.remark) == (ResponseCode.SUCCESS, None)
            forged = {HOP: "1", TERM: "1", CLIENT_HOST: f"{OPERATOR}:40000"}
            for request in (create("by-stranger"), create("by-stranger", **forged)):
                refused = await ask(port, request)
                assert refused.code == ResponseCode.NO_PERMISSION
                assert str(refused.remark).startswith(f"{STRANGER} may change nothing here: adminAllowFrom")
        # Nor does anybody send in somebody else's name: the record's born host is the sender's own.
        sent = Command.request(RequestCode.SEND_MESSAGE_V2, v2("by-operator-0"), b"x", ext=forged)
        sent.flag |= HOP_FLAG
        assert (await ask(ports[1], sent)).code == ResponseCode.SUCCESS
        (found,) = await read_all(cluster.namesrv, "by-operator-0", 1)
        assert found.born_host[0] == STRANGER
        topics = cluster.brokers[leader].store.topics()
        assert "by-stranger" not in topics
    finally:
        await cluster.close()
