"""What strangers try at servers with access control: each is refused with 16, changes nothing, and is in the audit log.

Real processes, administered from anywhere (adminAllowFrom=*), so that it is access control that refuses. Each attempt
comes from an address of its own: of one there are so many lines in ten seconds.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.master_slave.ha_secret import MAC_BYTES, MAGIC, NONCE_BYTES
from chaos.host.localfolder import kept_peers, kept_port
from chaos.host.processes import ServerProcess, broker_process, free_ports, namesrv_process, raft_processes
from raft.network.handshake import Dialler, Identity
from raft.protocol.wire import RaftFrameReader, frame
from raftmq import AdminClient, Credentials
from remoting.audit import CHANGES
from remoting.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.bodies.registry import SetMessageRequestModeBody, SubscriptionGroupConfig
from remoting.codes import ClassicCode, NamesrvCode, RaftCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.haframes import report
from remoting.signing import sign
from tests.cluster.process_group import registered
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_runtime_http_judge import ELSEWHERE, asked
from tests.parts.byte_peer import Peer
from tests.parts.raft_links import hello_of

ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
WRONG, MALLORY = Credentials("admin", "guessed-wrong-1"), Credentials("mallory", "mallory-secret-1")
# What the links of a pair, and of a group, are opened with.
LINKS_SECRET = b"a-secret-of-links-1"
SECRETS = tuple(who.secret_key for who in (ADMIN, INNER, WRONG, MALLORY))
SETTINGS: dict[str, object] = {
    "adminAllowFrom": "*",
    "authenticationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
}
NAMESRV, MASTER, MEMBER = "NameServer", "master", "member of a group"
BROKERS = (MASTER, MEMBER)
# How a stranger comes, and what he is told by a broker and by a NameServer, which knows the super users only.
WAYS = (
    (None, "username cannot be null.", "username cannot be null."),
    (WRONG, "check signature failed.", "check signature failed."),
    (MALLORY, "User:mallory ", "User:mallory is not found."),
)


class Try(NamedTuple):
    """Something that strangers would like to do, and at which servers."""

    what: str
    where: Sequence[str]
    code: int
    body: bytes
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        """What the audit log calls it."""
        known = CHANGES.get(self.code)
        return known or (RequestCode(self.code).name if self.code in set(RequestCode) else f"code {self.code}")


def wish(what: str, where: str, code: int, body: bytes = b"", /, **fields: str) -> Try:
    return Try(what, BROKERS if where == "brokers" else (where,), int(code), body, fields)


ALL = AclInfo("User:mallory", [PolicyInfo("Custom", [PolicyEntryInfo("*", ["All"], None, "Allow")])]).encode()
EVE = UserInfo("eve", "eve-secret-1", "Super").encode()
GROUP, MODE = SubscriptionGroupConfig("mine").encode(), SetMessageRequestModeBody("g", "POP", 0, "orders").encode()
QUEUE = {"topic": "orders", "consumerGroup": "g", "queueId": "0"}
SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0"}
TRIES = (
    wish("dissolve a group", MEMBER, RaftCode.LEAVE),
    wish("dissolve a group", MEMBER, ClassicCode.TO_CLASSIC),
    wish("dissolve a group", MEMBER, RaftCode.REMOVE_PEER, id="n0"),
    wish("join a group", MEMBER, RaftCode.ADD_PEER, id="n9", address="127.0.0.1:1"),
    wish("change the leader", MEMBER, RaftCode.TRANSFER_LEADER, id="n9"),
    wish("change the leader", MASTER, ClassicCode.PROMOTE),
    wish("change the leader", MASTER, ClassicCode.FOLLOW),
    wish("change the leader", MASTER, ClassicCode.ACCEPT_MASTER),
    wish("change the leader", MASTER, ClassicCode.DEPOSED, b'{"by":"127.0.0.1:1","epoch":9}'),
    wish("make a group of it", MASTER, ClassicCode.TO_RAFT),
    wish("change configuration", "brokers", RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=false"),
    wish("change configuration", NAMESRV, RequestCode.UPDATE_NAMESRV_CONFIG, b"kvEntriesMax=1"),
    wish("see configuration", "brokers", RequestCode.GET_BROKER_CONFIG),
    wish("see configuration", NAMESRV, RequestCode.GET_NAMESRV_CONFIG),
    wish("delete", "brokers", RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"),
    wish("delete", "brokers", RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g"),
    wish("delete", "brokers", RequestCode.DELETE_EXPIRED_COMMITLOG),
    wish("delete", NAMESRV, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="orders"),
    wish("delete", NAMESRV, NamesrvCode.FORGET, b'{"broker":"broker-a"}'),
    wish("register a master", NAMESRV, RequestCode.REGISTER_BROKER, brokerName="far", brokerId="0"),
    wish("take a master out", NAMESRV, RequestCode.UNREGISTER_BROKER, brokerName="broker-a", brokerId="0"),
    wish("take a master out", NAMESRV, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a"),
    wish("become somebody", "brokers", RequestCode.AUTH_CREATE_USER, EVE, username="eve"),
    wish("become somebody", "brokers", RequestCode.AUTH_CREATE_ACL, ALL, subject="User:mallory"),
    wish("copy secrets", MASTER, ClassicCode.USERS),
    wish("make a group of consumers", "brokers", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP),
    wish("set how a group reads", "brokers", RequestCode.SET_MESSAGE_REQUEST_MODE, MODE),
    wish("send", "brokers", RequestCode.SEND_MESSAGE_V2, b"x", **SEND),
    wish("read", "brokers", RequestCode.PULL_MESSAGE, **QUEUE),
    wish("move an offset", "brokers", RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset="0"),
)
ADDRESSES = count(1)


class Server(NamedTuple):
    """A process, and the file of its audit log."""

    process: ServerProcess
    audit: Path

    @property
    def port(self) -> int:
        """Where it serves clients."""
        return int(self.process.address.rpartition(":")[2])

    def lines(self) -> list[dict[str, str]]:
        """Return what the audit log says."""
        return [json.loads(line) for line in self.audit.read_text(encoding="utf-8").splitlines()]

    async def line_from(self, host: str) -> dict[str, str]:
        """Return the one line about a connection, which may be written a moment after its end is seen here."""
        async with asyncio.timeout(20):
            while not (found := [line for line in self.lines() if line["from"] == host]):
                await asyncio.sleep(0.02)
        (line,) = found
        return line

    def refusals(self) -> dict[str, dict[str, str]]:
        """Return what the audit log says of refused requests, by the address that they came from."""
        lines = map(json.loads, self.audit.read_text(encoding="utf-8").splitlines())
        return {line["from"].rpartition(":")[0]: line for line in lines if line.get("code") == "16"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A NameServer, a master and the one member of a Raft group, each with the topic orders and the user mallory."""
    folder = tmp_path_factory.mktemp("strangers")
    audits = {name: folder / f"{number}.jsonl" for number, name in enumerate((NAMESRV, MASTER, MEMBER))}

    secret = folder / "links.secret"
    secret.write_bytes(LINKS_SECRET)
    secret.chmod(0o600)
    (ha_port,) = free_ports(1)

    def settings(name: str) -> dict[str, object]:
        own: dict[str, object] = {} if name == NAMESRV else {"authorizationEnabled": "true", **SMALL_FILES}
        if name == MASTER:
            own |= {"haListenPort": ha_port, "haSecretFile": secret}
        elif name == MEMBER:
            own["raftSecretFile"] = secret
        return {**SETTINGS, **own, "auditLogPath": str(audits[name])}

    namesrv = namesrv_process(folder / "namesrv", settings=settings(NAMESRV))
    master = broker_process(folder / "master", namesrv=namesrv.address, settings=settings(MASTER))
    in_group = {**settings(MEMBER), "brokerName": "broker-g", "dLegerGroup": "broker-g"}
    (member,) = raft_processes(folder / "group", 1, namesrv=namesrv.address, settings=in_group)
    made = {NAMESRV: Server(namesrv, audits[NAMESRV])}
    made |= {MASTER: Server(master, audits[MASTER]), MEMBER: Server(member, audits[MEMBER])}
    try:
        for server in made.values():
            server.process.launch()
        for server in made.values():
            server.process.wait_ready()
        asyncio.run(furnish(namesrv.address, [master.address, member.address]))
        yield made
    finally:
        for server in made.values():
            server.process.kill()


async def furnish(namesrv: str, brokers: Sequence[str]) -> None:
    # They serve, and may have begun before the NameServer did: then they register a while later.
    await registered(namesrv, "broker-a", "broker-g", within=40)
    async with AdminClient(namesrv, credentials=ADMIN) as admin:
        for address in brokers:
            await admin.create_topic("orders", address=address)
            await admin.create_user(MALLORY.access_key, MALLORY.secret_key, address=address)


async def ask(port: int, host: str, code: int, who: Credentials | None, wanted: Try | None = None) -> Command:
    """Ask from one of this machine's addresses."""
    fields, body = ({}, b"") if wanted is None else (wanted.fields, wanted.body)
    request = Command.request(code, ext=fields, body=body)
    if who is not None:
        sign(request, who)
    async with asyncio.timeout(20):
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
        try:
            peer.send(request)
            return await peer.receive()
        finally:
            await peer.close()


@pytest.mark.parametrize("wanted", TRIES, ids=lambda wanted: f"{wanted.what}-{wanted.name}")
@pytest.mark.parametrize("way", WAYS, ids=["unsigned", "wrongly signed", "an ordinary user"])
async def test_strangers_are_refused_and_it_is_in_the_audit_log(
    servers: dict[str, Server], way: tuple[Credentials | None, str, str], wanted: Try
) -> None:
    who, by_broker, by_namesrv = way
    for name in wanted.where:
        server, host = servers[name], f"127.0.1.{next(ADDRESSES)}"
        answer = await ask(server.port, host, wanted.code, who, wanted)
        assert answer.code == ResponseCode.NO_PERMISSION
        said = str(answer.remark)
        assert said.startswith(by_namesrv if name == NAMESRV else by_broker)
        assert not answer.body
        line = server.refusals()[host]
        assert (line["asked"], line["user"]) == (wanted.name, "" if who is None else who.access_key)
        assert line["outcome"].startswith(f"refused with 16 ({said[:100]}")


async def test_nobody_reads_the_ha_stream_who_does_not_know_the_secret(servers: dict[str, Server]) -> None:
    port = kept_port(servers[MASTER].process.log.parent / "broker.conf", "haListenPort")
    # RocketMQ's slave, which proves nothing; and one that does not know the secret.
    for said, told in ((report(0), "does not prove that"), (MAGIC + bytes(64), "does not know the secret")):
        host = f"127.0.1.{next(ADDRESSES)}"
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            writer.write(said)
            got = await reader.read()
            writer.close()
        assert len(got) in (0, NONCE_BYTES + MAC_BYTES), (
            "a proof of the master's own at the most, and nothing of the log"
        )
        line = await servers[MASTER].line_from(host)
        assert line["asked"] == "HA"
        assert f"refused (it {told}" in line["outcome"]


class Guesser(Dialler):
    """A member that does not mind who answers it, and proves that it knows a secret of its own making."""

    def _find_secret(self, _fields: object) -> None:
        self._secret = LINKS_SECRET[::-1]


async def test_nobody_joins_raft_who_does_not_know_the_secret(servers: dict[str, Server]) -> None:
    port = kept_peers(servers[MEMBER].process.log.parent.parent)["n0"]
    identity = Identity("broker-g", "n9", (LINKS_SECRET[::-1],), hello_of("n9").encode)
    for dialler in (None, Guesser(identity, "n0", "messages", bytes(NONCE_BYTES))):
        host = f"127.0.1.{next(ADDRESSES)}"
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            if dialler is None:
                writer.writelines(frame(b"let me in")[0])
            else:
                writer.writelines(frame(dialler.open())[0])
                frames = RaftFrameReader()
                answer = await reader.read(len(frames.buffer()))
                frames.buffer()[: len(answer)] = answer
                ((head, *_),) = frames.filled(len(answer))
                writer.writelines(frame(dialler.take(head).reply)[0])
            await reader.read()
            writer.close()
        line = await servers[MEMBER].line_from(host)
        assert line["asked"] == "Raft"
        told = "what came is no handshake of ours" if dialler is None else "the two sides do not have the same secret"
        assert f"refused ({told}" in line["outcome"]


@pytest.mark.skipif(ELSEWHERE == "127.0.0.1", reason="this machine has loopback only")
@pytest.mark.parametrize("path", ["/metrics", "/v1/status"])
async def test_who_is_elsewhere_reads_no_figures(servers: dict[str, Server], path: str) -> None:
    for server in servers.values():
        status, said = await asyncio.to_thread(asked, server.process, path, ELSEWHERE)
        assert status == 403
        assert f"{ELSEWHERE} may not ask here: httpAllowFrom of this server" in said
        lines = map(json.loads, server.audit.read_text(encoding="utf-8").splitlines())
        told = [line for line in lines if line.get("asked") == "HTTP"]
        assert (told[0]["from"], told[0]["code"]) == (ELSEWHERE, "403")


async def test_nothing_of_it_was_done_and_no_secret_was_written_down(servers: dict[str, Server]) -> None:
    """It comes last; who may is still answered, so that a refusal was no failure."""
    async with AdminClient(servers[NAMESRV].process.address, credentials=ADMIN) as admin:
        known = {(broker.name, broker.broker_id) for broker in await admin.brokers()}
        assert known == {("broker-a", 0), ("broker-g", 0)}
        route = await admin.route("orders")
        assert route is not None
        assert {(queues.brokerName, queues.perm) for queues in route.queueDatas} == {("broker-a", 6), ("broker-g", 6)}
        (values,) = (await admin.namesrv_config()).values()
        assert values["kvEntriesMax"] != "1"
        for name in BROKERS:
            address = servers[name].process.address
            assert [user.username for user in await admin.users(address)] == ["admin", "inner", "mallory"]
            assert await admin.policies(address) == []
            assert (await admin.broker_config(address))["traceOn"] == "true"
    for server in servers.values():
        written = server.audit.read_text(encoding="utf-8") + server.process.log.read_text(encoding="utf-8")
        assert not [secret for secret in (*SECRETS, "eve-secret-1", LINKS_SECRET.decode()) if secret in written]
        assert server.audit.stat().st_mode & 0o777 == 0o600
