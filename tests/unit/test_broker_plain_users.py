"""broker/metadata/plain_users.py: ACL 1.0's accounts become users at a start, of a broker alone and of a Raft group."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from auth.directory import AccessDirectory
from auth.model import Action, User, UserType, topic
from auth.needs import Access
from broker.metadata import plain_users
from broker.metadata import users as module
from broker.metadata.operations import LocalMeta
from broker.metadata.plain_users import StartMigration, start_migration
from broker.metadata.users import UserTable
from broker.settings.config import BrokerConfig, load_broker_config
from remoting.signing import Credentials
from runtime.clock import ManualClock
from runtime.config import ConfigError
from tests.parts.meta_parts import Member, leader

INNER = Credentials("inner", "inner-secret-1")
SENDS, READS = Access(topic("orders"), (Action.PUB,)), Access(topic("orders"), (Action.SUB,))
HOST = "192.0.2.1"
PLAIN = """\
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- accessKey: alice
  secretKey: alice-secret-1
  topicPerms: [orders=PUB]
- accessKey: root
  secretKey: root-secret-1
  admin: true
- accessKey: inner
  secretKey: guessed-1
  admin: true
"""


def config(folder: Path, **values: Any) -> BrokerConfig:
    (folder / "plain_acl.yml").write_text(PLAIN)
    (folder / "plain_acl.yml").chmod(0o600)
    return BrokerConfig(migrateAuthFromV1Enabled=True, plainAclFolder=str(folder), **values)


def table_in(folder: Path) -> UserTable:
    return UserTable(folder / "auth.json", ManualClock(), AccessDirectory(inner=INNER), LocalMeta())


async def test_accounts_become_users_once_and_nobody_is_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked, table = config(tmp_path), table_in(tmp_path)
    table.put(User("root", "another-secret"))
    with caplog.at_level(logging.WARNING):
        migration = start_migration(asked, table)
        assert set(table.users) == {"root"}
        await migration.run()
    assert not migration.waits
    assert "globalWhiteRemoteAddresses (10.0.0.1)" in caplog.text
    assert "users made of ACL 1.0's accounts: alice; take the key out" in caplog.text
    assert "alice-secret-1" not in caplog.text
    directory = table.directory
    assert directory.denied("alice", SENDS, HOST) is None
    assert directory.denied("alice", READS, HOST) is not None
    assert table.users["root"] == User("root", "another-secret")
    # The brokers' own user is there too, by the configuration.
    assert "inner" not in table.users
    version = table.data_version
    # Safe by now: another process has it from the file, and makes nothing.
    again = table_in(tmp_path)
    assert again.users == table.users
    assert again.policies == table.policies
    await start_migration(asked, again).run()
    assert again.data_version == version
    for each in (table, again):
        await each.close()


async def test_what_was_made_once_is_not_made_again_in_the_same_process(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    migration = start_migration(config(tmp_path), table)
    await migration.run()
    table.delete("alice")
    await migration.run()
    assert set(table.users) == {"root"}
    # A later start makes him again, as RocketMQ's does.
    await start_migration(config(tmp_path), table).run()
    assert set(table.users) == {"alice", "root"}
    assert table.users["root"].kind is UserType.SUPER
    await table.close()


async def begun(member: Member, migration: StartMigration) -> asyncio.Task[None]:
    """What the new leader runs, as far as its proposals."""
    task = asyncio.create_task(migration.run())
    await asyncio.sleep(0)
    member.turn()
    return task


async def test_in_a_group_the_leader_makes_them_through_the_log(tmp_path: Path) -> None:
    member = leader(tmp_path)
    migration = start_migration(config(tmp_path), member.users)
    task = await begun(member, migration)
    # Shown, not yet agreed upon.
    assert set(member.users.users) == {"alice", "root", "inner"}
    assert member.users.directory.user("alice") is None
    # The lead is lost before it is: everything is taken back, and left for the next time.
    member.role.become(None)
    await task
    assert set(member.users.users) == set()
    assert migration.waits
    member.proposed.clear()
    member.role.become(5)
    task = await begun(member, migration)
    assert not task.done()
    member.settle()
    await task
    assert not migration.waits
    assert member.users.directory.denied("alice", SENDS, HOST) is None
    assert member.users.directory.denied("alice", READS, HOST) is not None


async def test_who_does_not_lead_any_more_leaves_all_of_it(tmp_path: Path) -> None:
    member = leader(tmp_path)
    migration = start_migration(config(tmp_path), member.users)
    member.role.become(None)
    await migration.run()
    assert migration.waits
    assert member.proposed == []
    assert set(member.users.users) == set()


async def test_limits_are_told_and_the_rest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "POLICIES_MAX", 0)
    table = table_in(tmp_path)
    with caplog.at_level(logging.ERROR):
        await start_migration(config(tmp_path), table).run()
    assert set(table.users) == {"root"}
    assert "could not be made: alice (this broker keeps at most 0 policies)" in caplog.text
    await table.close()


async def test_without_the_key_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text("no: yaml: at all")
    table = table_in(tmp_path)
    migration = start_migration(BrokerConfig(plainAclFolder=str(tmp_path)), table)
    assert not migration.waits
    await migration.run()
    assert table.users == {}
    await table.close()


def test_a_file_that_cannot_be_used_ends_the_start_and_none_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = config(tmp_path)
    (tmp_path / "plain_acl.yml").write_text("accounts: alice")
    with pytest.raises(ConfigError, match=r"plain_acl\.yml, line 1: accounts: it takes a list"):
        start_migration(asked, table_in(tmp_path))
    (tmp_path / "plain_acl.yml").unlink()
    with caplog.at_level(logging.WARNING):
        assert not start_migration(asked, table_in(tmp_path)).waits
    assert f"there is no plain_acl.yml and no acl/ in {tmp_path}" in caplog.text


def test_a_file_that_others_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = config(tmp_path)
    with caplog.at_level(logging.WARNING):
        start_migration(asked, table_in(tmp_path))
        assert "any user of this machine" not in caplog.text
        (tmp_path / "plain_acl.yml").chmod(0o644)
        start_migration(asked, table_in(tmp_path))
    assert "plain_acl.yml holds secret keys, and any user of this machine may read" in caplog.text


def test_where_the_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    wanted = {"migrateAuthFromV1Enabled": "true"}
    with pytest.raises(ConfigError, match="migrateAuthFromV1Enabled=true takes plainAclFolder"):
        load_broker_config(wanted)
    beside = {**wanted, "brokerConfigPath": str(tmp_path / "broker.conf")}
    assert load_broker_config(beside)[0].plain_acl_folder() == tmp_path
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    assert load_broker_config(beside)[0].plain_acl_folder() == Path("/opt/rocketmq/conf")
    named = {**beside, "plainAclFolder": "/etc/old"}
    assert load_broker_config(named)[0].plain_acl_folder() == Path("/etc/old")
    assert load_broker_config({})[0].plainAclFolder == ""


def test_names_in_a_line_are_bounded() -> None:
    names = [f"u{number}" for number in range(plain_users.NAMES_MAX + 2)]
    assert plain_users._few(names).endswith("u19 and 2 more")
    assert plain_users._few(names[:2]) == "u0, u1"
