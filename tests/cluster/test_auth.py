"""Access control end to end: a NameServer and brokers that know users, our client and our commands with credentials."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from raft.snapshot.protocol import Marker, write_marker
from raftmq import (
    AdminClient,
    ClientInstance,
    ConsumeFrom,
    Credentials,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ResponseError,
    SendFailed,
    SimpleConsumer,
)
from raftmq.cli.main import app
from remoting.client import RemotingClient
from remoting.codes import NamesrvCode, RequestCode
from remoting.command import Command
from remoting.headers.registry import GetMaxOffsetRequestHeader
from remoting.signing import sign
from tests.cluster.broker_peer import running
from tests.cluster.raft_cluster import CALM, RaftCluster

ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE = Credentials("alice", "alice-secret-1")
WRONG = Credentials("alice", "guessed-wrong-1")
USERS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
}
# A change comes with the entry of the log, far sooner than within a second, or it never comes: this ends the waiting.
CHANGE_SECONDS = 60.0


class Guarded(RaftCluster):
    """A group whose brokers and NameServer ask for signatures."""

    def __init__(self, folder: Path, size: int, more: Mapping[str, str] | None = None) -> None:
        # Alone nobody is deposed.
        pace = CALM if size > 1 else {}
        super().__init__(folder, size, {**pace, **USERS, "authorizationEnabled": "true", **(more or {})})
        self.name_server = NameServer(
            NamesrvConfig(
                listenPort=0,
                httpEnable=False,
                kvConfigPath=str(folder / "namesrv" / "kvConfig.json"),
                authenticationEnabled=True,
                initAuthenticationUser=USERS["initAuthenticationUser"],
                innerClientAuthenticationCredentials=USERS["innerClientAuthenticationCredentials"],
            )
        )

    def any(self) -> Broker:
        return next(iter(self.brokers.values()))


async def guarded(folder: Path, size: int, more: Mapping[str, str] | None = None) -> AsyncIterator[Guarded]:
    made = Guarded(folder, size, more)
    try:
        await made.start()
        await made.leader()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Guarded]:
    async for made in guarded(tmp_path, 1):
        yield made


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Guarded]:
    async for made in guarded(tmp_path, 3):
        yield made


async def with_alice(cluster: Guarded, address: str | None = None) -> None:
    """Make a topic, and a user who may send to it and read it with the group g."""
    async with AdminClient(cluster.namesrv, credentials=ADMIN) as admin:
        target = address or cluster.any().address
        await registered(admin)
        await admin.create_topic("orders", read_queues=1, write_queues=1, address=target)
        await admin.create_user("alice", ALICE.secret_key, address=target)
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"], address=target)
        for name in ("g", "pops"):
            await admin.set_policy("alice", f"Group:{name}", ["Sub"], address=target)


async def registered(admin: AdminClient) -> None:
    async with asyncio.timeout(60):
        while not any(broker.broker_id == 0 for broker in await admin.brokers()):
            await asyncio.sleep(0.02)


async def asked(cluster: Guarded, member: str, who: Credentials, topic: str = "orders") -> Command:
    """Ask a member for the end of a queue, which takes Sub or Get of its topic."""
    client = RemotingClient(credentials=who)
    try:
        header = GetMaxOffsetRequestHeader(topic=topic, queueId=0)
        request = Command.request(RequestCode.GET_MAX_OFFSET, header)
        return await client.invoke(cluster.brokers[member].address, request, 5.0)
    finally:
        await client.close()


async def test_users_do_what_they_may_and_nothing_else(single: Guarded, tmp_path: Path) -> None:
    await with_alice(single)
    async with Producer("p", single.namesrv, credentials=ALICE) as producer:
        await producer.send(Message("orders", b"one"))
        with pytest.raises(SendFailed, match="no permission to access Topic:other"):
            await producer.send(Message("other", b"two"))
    for who, why in ((WRONG, "check signature failed"), (Credentials("eve", "x"), "User:eve is not found")):
        async with Producer("p", single.namesrv, credentials=who) as producer:
            with pytest.raises(SendFailed, match=why) as refused:
                await producer.send(Message("orders", b"no"))
            assert who.secret_key not in str(refused.value) or who.secret_key == "x"
    async with Producer("p", single.namesrv) as producer:
        with pytest.raises(SendFailed, match="username cannot be null"):
            await producer.send(Message("orders", b"no"))
    got: list[bytes] = []
    enough = asyncio.Event()

    async def take(messages: list[Any]) -> None:
        got.extend(message.body for message in messages)
        enough.set()

    consumer = PushConsumer("g", single.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, credentials=ALICE)
    consumer.subscribe("orders")
    consumer.on_message(take)
    async with consumer, asyncio.timeout(60):
        await enough.wait()
    assert got == [b"one"]
    simple = SimpleConsumer("pops", single.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, credentials=ALICE)
    simple.subscribe("orders")
    async with simple, asyncio.timeout(60):
        await (await simple.receive(1))[0].change_invisible(1.0)
        # From here on it is in the group's retry topic, which its handle names.
        (again,) = await simple.receive(1, wait=30)
        assert (again.body, again.reconsume_times) == (b"one", 1)
        await again.change_invisible(1.0)
        (last,) = await simple.receive(1, wait=30)
        await last.ack()
    path = tmp_path / "n0" / "config" / "auth.json"
    await single.stop_broker("n0")
    assert path.stat().st_mode & 0o777 == 0o600
    await single.start_broker("n0")
    await single.leader()
    assert (await asked(single, "n0", ALICE)).code == 0
    assert (await asked(single, "n0", WRONG)).code == 16


async def test_secrets_are_in_no_answer_and_in_no_log(single: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await with_alice(single)
        await asked(single, "n0", WRONG)
        async with AdminClient(single.namesrv, credentials=ADMIN) as admin:
            address = single.any().address
            shown = [str(await admin.users(address)), str(await admin.user("alice", address))]
            shown += [str(await admin.policies(address)), str(await admin.policies_of("alice", address))]
            shown.append(str(await admin.broker_config(address)))
    for secret in (ADMIN, INNER, ALICE, WRONG):
        assert secret.secret_key not in "".join(shown)
        assert secret.secret_key not in caplog.text
    lines = [record.__dict__["audit"] for record in caplog.records if record.name == "audit"]
    made = next(line for line in lines if line["asked"] == "AUTH_CREATE_USER")
    assert (made["user"], made["code"]) == ("admin", "0")
    assert made["body"] == "userType=Normal; userStatus=enable; password=(hidden)"
    policy = next(line for line in lines if line["asked"] == "AUTH_UPDATE_ACL")
    assert policy["body"].startswith("User:alice; Custom Topic:orders Pub,Sub Allow")
    refused = next(line for line in lines if line["code"] == "16")
    assert (refused["user"], refused["asked"]) == ("alice", "GET_MAX_OFFSET")
    assert not [line for line in lines if "Signature" in str(line)]


async def test_a_name_server_takes_changes_from_brokers_and_administrators_only(single: Guarded) -> None:
    stranger, alice, admin = (RemotingClient(credentials=who) for who in (None, ALICE, ADMIN))
    try:
        for code in (RequestCode.REGISTER_BROKER, RequestCode.WIPE_WRITE_PERM_OF_BROKER, NamesrvCode.FORGET):
            answer = await stranger.invoke(single.namesrv, Command.request(code, ext={"brokerName": "broker-a"}))
            assert (answer.code, answer.remark) == (16, "username cannot be null.")
            answer = await alice.invoke(single.namesrv, Command.request(code, ext={"brokerName": "broker-a"}))
            assert (answer.code, answer.remark) == (16, "User:alice is not found.")
        wiped = Command.request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext={"brokerName": "nobody"})
        assert (await admin.invoke(single.namesrv, wiped)).code != 16
        # Where brokers are, everybody may ask.
        assert (await stranger.invoke(single.namesrv, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))).code == 0
    finally:
        for client in (stranger, alice, admin):
            await client.close()


async def test_the_commands_make_users_and_use_the_environments_credentials(single: Guarded, tmp_path: Path) -> None:
    async with AdminClient(single.namesrv) as admin:
        await registered(admin)
    file = tmp_path / "admin.credentials"
    file.write_text(f"accessKey={ADMIN.access_key}\nsecretKey={ADMIN.secret_key}\n")
    file.chmod(0o600)
    environment = {"NAMESRV_ADDR": single.namesrv, "TERM": "dumb", "RAFTMQ_CREDENTIALS": str(file)}

    def command(*words: str, typed: str | None = None, **more: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"], input=typed, env={**environment, **more})
        return json.loads(done.stdout) if done.exit_code == 0 else done.stderr

    def all_of_it() -> None:
        assert command("user", "create", "bob", typed="bob-secret-1\n")["user"] == "bob"
        assert "The user is existed" in command("user", "create", "bob", typed="again\n")
        assert [row["user"] for row in command("user", "list")] == ["admin", "bob", "inner"]
        assert command("user", "show", "bob")[0]["status"] == "enable"
        assert "no broker has a user carol" in command("user", "show", "carol")
        command("acl", "create", "bob", "Topic:*", "-a", "Pub", "--source", "127.0.0.0/8")
        (row,) = command("acl", "show", "bob")
        assert (row["resource"], row["actions"], row["decision"]) == ("Topic:*", ["Pub"], "Allow")
        assert command("acl", "list", "--user", "nobody") == []
        bob = {"RAFTMQ_ACCESS_KEY": "bob", "RAFTMQ_SECRET_KEY": "bob-secret-1"}
        assert "no permission to access Cluster:DefaultCluster" in command("user", "list", **bob)
        secret = tmp_path / "bob.secret"
        secret.write_text("bob-secret-2\n")
        assert f"chmod 600 {secret}" in command("user", "update", "bob", "--secret-file", str(secret))
        secret.chmod(0o600)
        command("user", "update", "bob", "--secret-file", str(secret))
        assert "check signature failed" in command("user", "list", **bob)
        bob["RAFTMQ_SECRET_KEY"] = "bob-secret-2"
        command("user", "update", "bob", "--disable")
        assert "User:bob is disabled" in command("user", "list", **bob)
        command("acl", "delete", "bob", "Topic:*")
        assert command("acl", "show", "bob") == []
        command("user", "delete", "bob")
        assert "User:bob is not found" in command("user", "list", **bob)
        file.chmod(0o640)
        assert f"chmod 600 {file}" in command("user", "list")

    await asyncio.to_thread(all_of_it)


async def test_a_change_counts_on_every_member_at_once_and_stays(group: Guarded, tmp_path: Path) -> None:
    leader = await group.leader()
    follower = next(member for member in group.ids if member != leader)
    # Asked of a follower, which passes it on to the leader and signs for itself.
    await with_alice(group, group.brokers[follower].address)
    await on_all(group, 0)
    async with AdminClient(group.namesrv, credentials=ADMIN) as admin:
        at = group.brokers[follower].address
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"], allow=False, address=at)
        await on_all(group, 16)
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"], address=at)
        await on_all(group, 0)
    instance = ClientInstance(group.namesrv, credentials=ALICE)
    async with Producer("p", instance=instance) as producer:
        await producer.send(Message("orders", b"before"))
        await group.stop_broker(leader)
        await group.leader()
        await producer.send(Message("orders", b"after"))
    await on_all(group, 0)
    # A member that copies the store of another has its users too.
    write_marker(tmp_path / leader / "raft" / "reset", Marker(leader=await group.leader()))
    await group.start_broker(leader)
    await group.leader()
    await on_all(group, 0)
    assert (await asked(group, leader, WRONG)).code == 16
    assert (tmp_path / leader / "config" / "auth.json").stat().st_mode & 0o077 == 0
    async with LitePullConsumer("g", group.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, credentials=ALICE) as reader:
        reader.subscribe("orders")
        got: list[bytes] = []
        async with asyncio.timeout(60):
            while len(got) < 2:
                got += [message.body for message in await reader.poll(1.0)]
    assert got == [b"before", b"after"]


async def on_all(group: Guarded, code: int) -> None:
    """Return when every member answers alice so."""
    began = time.monotonic()
    waiting = set(group.brokers)
    while waiting:
        answers = {member: (await asked(group, member, ALICE)).code for member in waiting}
        waiting = {member for member, got in answers.items() if got != code}
        assert not waiting or time.monotonic() - began < CHANGE_SECONDS, answers


async def test_nobody_but_a_member_speaks_for_others(group: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    client = RemotingClient()
    try:
        with caplog.at_level(logging.INFO, "audit"):
            for address, code in (
                (group.any().address, RequestCode.GET_BROKER_RUNTIME_INFO),
                (group.namesrv, RequestCode.WIPE_WRITE_PERM_OF_BROKER),
            ):
                request = Command.request(code, ext={"raftHop": "1", "raftUser": "alice", "brokerName": "b"})
                sign(request, ADMIN)
                answer = await client.invoke(address, request)
                assert answer.code == 16
                assert str(answer.remark).startswith("User:admin may not speak for others")
        # The log names who signed, not whom he named.
        lines = [record.__dict__["audit"] for record in caplog.records if record.name == "audit"]
        assert [line["user"] for line in lines] == ["admin", "admin"]
    finally:
        await client.close()


async def test_a_member_without_access_control_opens_the_group_to_nobody(group: Guarded) -> None:
    await with_alice(group, group.brokers[await group.leader()].address)
    leader = await group.leader()
    open_member = next(member for member in group.brokers if member != leader)
    await group.stop_broker(open_member)
    await group.start_broker(open_member, authenticationEnabled="false", authorizationEnabled="false")
    await group.leader()
    address = group.brokers[open_member].address
    client = RemotingClient()
    user = b'{"password":"a-new-secret-1","userType":"Super"}'

    async def answer(code: int, who: Credentials | None, **fields: str) -> Command:
        body = user if code == RequestCode.AUTH_CREATE_USER else b""
        request = Command.request(code, body=body, ext=fields)
        if who is not None:
            sign(request, who)
        return await client.invoke(address, request, 5.0)

    try:
        strangers: list[tuple[Credentials | None, dict[str, str]]] = [
            (None, {}),
            (None, {"AccessKey": "admin"}),
            (WRONG, {}),
            (None, {"raftUser": "admin"}),
        ]
        for who, said in strangers:
            refused = await answer(RequestCode.AUTH_CREATE_USER, who, username="eve", **said)
            assert (refused.code, "has not found out who asks" in str(refused.remark)) == (16, True), said
        # Who signs is served there as anywhere else, as far as he may.
        refused = await answer(RequestCode.AUTH_CREATE_USER, ALICE, username="eve")
        assert (refused.code, str(refused.remark)[:30]) == (16, "User:alice has no permission t")
        offsets = {"topic": "orders", "queueId": "0"}
        assert (await answer(RequestCode.GET_MAX_OFFSET, ALICE, **offsets)).code == 0
        assert (await answer(RequestCode.GET_MAX_OFFSET, None, **offsets)).code == 16
        assert (await answer(RequestCode.AUTH_CREATE_USER, ADMIN, username="bob")).code == 0
    finally:
        await client.close()


async def test_who_does_not_sign_as_the_brokers_do_gets_no_secrets(group: Guarded) -> None:
    async with AdminClient(group.namesrv, credentials=ADMIN) as admin:
        with pytest.raises(ResponseError, match="in a Raft group users go through its log"):
            await admin._call(group.any().address, 9123)


async def test_a_broker_with_users_takes_its_log_from_others_eyes(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    log = min((tmp_path / "commitlog").iterdir())
    for settings, left in (({}, 0o644), (USERS, 0o600)):
        log.chmod(0o644)
        async with running(tmp_path, settings):
            assert log.stat().st_mode & 0o777 == left


def test_the_configuration_names_what_is_missing() -> None:
    config = NamesrvConfig()
    with pytest.raises(ValueError, match="there is no user"):
        replace(config, authenticationEnabled=True).validate()
