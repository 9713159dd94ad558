"""Coming from ACL 1.0: the accounts of plain_acl.yml by the command, and at a broker's start."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.metadata import users
from broker.server import Broker
from broker.settings.config import load_broker_config
from raftmq import AdminClient, Credentials, Message, Producer, SendFailed
from raftmq.cli.main import app
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import GetMaxOffsetRequestHeader
from tests.cluster.test_auth import ADMIN, ALICE, Guarded, asked, on_all, registered

PLAIN = f"""\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: alice
    secretKey: {ALICE.secret_key}
    admin: false
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: DENY
    topicPerms:
      - orders=PUB
      - secrets=DENY
    groupPerms:
      - g=SUB
  - accessKey: oldroot
    secretKey: oldroot-secret-1
    admin: true
"""
OLD_ROOT = Credentials("oldroot", "oldroot-secret-1")


def written(folder: Path, text: str = PLAIN) -> Path:
    path = folder / "conf" / "plain_acl.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def keys(path: Path) -> dict[str, str]:
    return {"migrateAuthFromV1Enabled": "true", "plainAclFolder": str(path.parent)}


async def running(made: Guarded) -> AsyncIterator[Guarded]:
    try:
        await made.start()
        await made.leader()
        async with AdminClient(made.namesrv) as admin:
            await registered(admin)
        yield made
    finally:
        await made.close()


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Guarded]:
    async for made in running(Guarded(tmp_path, 1)):
        yield made


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(tmp_path, 3)
    made.have(keys(written(tmp_path)))
    async for each in running(made):
        yield each


def as_admin(cluster: Guarded, *words: str) -> Any:
    """What a command ends with, typed by the administrator."""
    environment = {
        "NAMESRV_ADDR": cluster.namesrv,
        "TERM": "dumb",
        "RAFTMQ_ACCESS_KEY": ADMIN.access_key,
        "RAFTMQ_SECRET_KEY": ADMIN.secret_key,
    }
    return CliRunner().invoke(app, list(words), env=environment)


async def test_the_command_carries_accounts_over_once(single: Guarded, tmp_path: Path) -> None:
    path = written(tmp_path)

    def migrate(*words: str) -> Any:
        done = as_admin(single, "acl", "migrate", str(path), "--json", *words)
        assert done.exit_code == 0, done.stderr
        assert ALICE.secret_key not in done.output
        return json.loads(done.stdout)

    async with AdminClient(single.namesrv, credentials=ADMIN) as admin:
        address = single.any().address
        tried = await asyncio.to_thread(migrate, "--dry-run")
        assert (tried["dryRun"], tried["new"]) == (True, 2)
        assert {row["result"] for row in tried["users"]} == {"would be made"}
        assert await admin.user("alice", address) is None
        made = await asyncio.to_thread(migrate)
        assert made["new"] == 2
        alice, root = made["users"]
        assert (alice["user"], alice["type"], alice["result"]) == ("alice", "Normal", "made")
        assert (root["user"], root["type"], root["policies"]) == ("oldroot", "Super", [])
        assert len(made["notCarriedOver"]) == 1
        assert "globalWhiteRemoteAddresses (10.10.103.*)" in made["notCarriedOver"][0]
        again = await asyncio.to_thread(migrate)
        assert again["new"] == 0
        assert {row["result"] for row in again["users"]} == {"there already"}
        for topic in ("orders", "secrets", "news"):
            await admin.create_topic(topic, read_queues=1, write_queues=1, address=address)
        async with Producer("p", single.namesrv, credentials=ALICE) as producer:
            for topic in ("orders", "news"):
                await producer.send(Message(topic, b"as before"))
            with pytest.raises(SendFailed, match="no permission to access Topic:secrets"):
                await producer.send(Message("secrets", b"refused as before"))
        # The default has Sub, and orders has what is said of it alone: refused by ACL 1.0, and by what it became.
        assert (await asked(single, "n0", ALICE, "orders")).code == 16
        assert (await asked(single, "n0", ALICE, "news")).code == 0
        assert (await asked(single, "n0", OLD_ROOT, "secrets")).code == 0
        # What an administrator has changed since is left, and told.
        await admin.set_policy("alice", "Topic:secrets", ["Pub"], address=address)
        other = await asyncio.to_thread(migrate)
        assert other["new"] == 0
        assert other["users"][0]["result"].startswith("there already, and other than in the file")
        async with Producer("p", single.namesrv, credentials=ALICE) as producer:
            await producer.send(Message("secrets", b"allowed since"))


async def test_the_command_speaks_to_people_and_refuses_what_is_no_account_file(
    single: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)

    def all_of_it() -> None:
        for words, last in (((), "2 made"), ((), "nothing was changed"), (("--dry-run",), "a dry run: nothing was")):
            done = as_admin(single, "acl", "migrate", str(path), *words)
            assert done.exit_code == 0
            assert done.stdout.splitlines()[-1].startswith(last)
            assert f"not carried over: {path}: globalWhiteRemoteAddresses" in done.stdout
            assert "Topic:secrets All Deny" in done.stdout
            assert "Topic:orders Sub Deny by default" in done.stdout
            assert ALICE.secret_key not in done.output
        as_admin(single, "user", "delete", "alice")
        monkeypatch.setattr(users, "POLICIES_MAX", 1)
        done = as_admin(single, "acl", "migrate", str(path))
        assert done.exit_code == 1
        assert done.stderr.startswith(f"raftmq: alice was made at {single.any().address}, and may do nothing yet")
        assert "keeps at most 1 policies" in done.stderr
        written(tmp_path, "accounts:\n- accessKey: eve\n  secretKey: eve-secret-1\n  admin: perhaps\n")
        done = as_admin(single, "acl", "migrate", str(path))
        assert done.exit_code == 1
        assert done.stderr == f"raftmq: {path}, line 4: accounts[0].admin: it takes true or false\n"
        assert as_admin(single, "acl", "migrate", str(tmp_path / "none.yml")).exit_code == 1

    await asyncio.to_thread(all_of_it)


async def test_a_group_makes_them_at_its_start_and_every_member_goes_by_them(group: Guarded, tmp_path: Path) -> None:
    async with AdminClient(group.namesrv, credentials=ADMIN) as admin:
        async with asyncio.timeout(60):
            while await admin.user("alice", group.any().address) is None:
                await asyncio.sleep(0.02)
        for topic in ("orders", "news"):
            await admin.create_topic(topic, read_queues=1, write_queues=1, address=group.any().address)
        await on_all(group, 16)
        for member in group.brokers:
            assert (await asked(group, member, ALICE, "news")).code == 0
        # Another secret in the file, a user who was changed, a new leader, another start: he stays as he is.
        written(tmp_path, PLAIN.replace(ALICE.secret_key, "another-secret-1"))
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"], address=group.any().address)
        leader = await group.leader()
        await group.stop_broker(leader)
        await group.leader()
        await group.start_broker(leader)
        await group.leader()
        await on_all(group, 0)


async def test_a_broker_alone_makes_them_before_it_serves_and_overwrites_nobody(tmp_path: Path) -> None:
    path = written(tmp_path)
    values = {
        "brokerName": "broker-a",
        "listenPort": "0",
        "httpEnable": "false",
        "vipPortEnable": "false",
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": str(4 << 20),
        "mappedFileSizeConsumeQueue": "20000",
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        # There is nobody but the accounts.
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        **keys(path),
    }
    for secret in (ALICE.secret_key, "another-secret-1"):
        written(tmp_path, PLAIN.replace(ALICE.secret_key, secret))
        config, store_config, unknown = load_broker_config(values)
        assert unknown == []
        broker = Broker(config, store_config)
        await broker.start()
        client = RemotingClient(credentials=ALICE)
        try:
            for topic, code in (("TBW102", 0), ("orders", 16)):
                header = GetMaxOffsetRequestHeader(topic=topic, queueId=0)
                request = Command.request(RequestCode.GET_MAX_OFFSET, header)
                assert (await client.invoke(broker.address, request, 5.0)).code == code
        finally:
            await client.close()
            await broker.close()
    kept = json.loads((tmp_path / "store" / "config" / "auth.json").read_text())
    assert [user["username"] for user in kept["users"]] == ["alice", "oldroot"]
