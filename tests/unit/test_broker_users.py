"""broker/metadata/users.py and broker/admin/users.py: the table of users, its file, and who may change whom."""

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from auth.copy_proof import UsersChallenge, UsersRequest, copy_proof
from auth.directory import AccessDirectory
from auth.model import Action, Decision, Policies, PolicyType, User, UserType, entry, topic
from auth.needs import Access
from broker.admin.users import AdminUsers
from broker.master_slave import metadata_copy
from broker.metadata import users as module
from broker.metadata.meta_entry import decode as read
from broker.metadata.operations import LocalMeta, Table, Verb
from broker.metadata.table_file import MetadataError
from broker.metadata.users import UserTable
from remoting.bodies.registry import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import ClassicCode, RequestCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import CommandError, RemotingError
from remoting.refusal import refusal
from remoting.signing import Credentials, sign
from runtime.clock import ManualClock
from tests.parts.meta_parts import GROUP, Member, leader
from tests.parts.slave_parts import MasterBroker, SlaveBroker, copying, serving

INNER = Credentials("inner", "inner-secret-1")
ALICE = User("alice", "alice-secret-1")
MAY_SEND: Policies = {PolicyType.CUSTOM: (entry(topic("orders"), [Action.PUB], Decision.ALLOW, ["192.0.2.0/24"]),)}
SENDS = Access(topic("orders"), (Action.PUB,))
HOST = "192.0.2.1"


def table_in(folder: Path) -> UserTable:
    return UserTable(folder / "auth.json", ManualClock(), AccessDirectory(inner=INNER), LocalMeta())


async def test_users_outlive_a_restart_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    table.set_policies("alice", MAY_SEND)
    await table.save()
    table.put(User("bob", "bob-secret-1", UserType.SUPER))
    await table.save()
    await table.close()
    for name in ("auth.json", "auth.json.bak"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    again = table_in(tmp_path)
    assert again.users == {"alice": ALICE, "bob": User("bob", "bob-secret-1", UserType.SUPER)}
    assert again.policies == {"alice": MAY_SEND}
    assert again.data_version == table.data_version
    assert again.directory.denied("alice", SENDS, HOST) is None
    assert again.directory.denied("alice", SENDS, "198.51.100.1") is not None


async def test_a_change_counts_at_once(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    known = table.directory
    table.put(ALICE)
    assert known.denied("alice", SENDS, HOST) is not None
    table.set_policies("alice", MAY_SEND)
    assert known.denied("alice", SENDS, HOST) is None
    table.set_policies("alice", {})
    assert known.denied("alice", SENDS, HOST) is not None
    table.set_policies("alice", MAY_SEND)
    table.delete("alice")
    assert known.user("alice") is None
    table.put(ALICE)
    assert known.denied("alice", SENDS, HOST) is not None
    await table.close()


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "auth.json"
    path.write_text('{"users":[{"username":"alice","password":"alice-secret-1"}]}')
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert set(table_in(tmp_path).users) == {"alice"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert "holds secret keys" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"users":[{"username":"alice","password":7}]}',
        '{"users":[{"username":"alice"}]}',
        '{"users":["alice-secret-1"]}',
        '{"policies":{"alice":[{"policyType":"Custom","entries":[{"resource":"alice-secret-1"}]}]}}',
    ],
)
def test_a_file_that_cannot_be_read_is_refused_without_its_secrets(tmp_path: Path, content: str) -> None:
    (tmp_path / "auth.json").write_text(content)
    with pytest.raises(MetadataError, match=r"auth\.json") as refused:
        table_in(tmp_path)
    assert "alice-secret-1" not in str(refused.value)


def test_what_a_newer_version_wrote_is_refused(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    version = [1, 0, 1]
    for operation in (
        [Verb.COMMIT, Table.USERS, version],
        [Verb.PUT, Table.USERS, version, [["quota", "alice", "{}"]]],
    ):
        with pytest.raises(MetadataError, match="upgrade this member"):
            table.apply(operation, own=False)


async def test_the_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USERS_MAX", 1)
    monkeypatch.setattr(module, "POLICIES_MAX", 1)
    table = table_in(tmp_path)
    table.put(ALICE)
    table.put(ALICE)
    with pytest.raises(CommandError, match="at most 1 users"):
        table.put(User("bob", "b"))
    table.set_policies("alice", MAY_SEND)
    table.set_policies("alice", MAY_SEND)
    with pytest.raises(CommandError, match="at most 1 policies"):
        table.set_policies("bob", MAY_SEND)
    for name in ("x" * 256, "a\nb"):
        with pytest.raises(CommandError, match="characters that can be printed"):
            table.put(User(name, "s"))
    await table.close()


async def asked(admin: AdminUsers, code: int, body: bytes = b"", who: str = "", **fields: str) -> Command:
    """What a handler answers; a refusal as an answer too."""
    request = Command.request(code, ext=fields | ({"AccessKey": who} if who else {}), body=body)
    try:
        reply: Any = admin.table()[code](cast(Connection, None), request)
        answer = await reply if asyncio.iscoroutine(reply) else reply
    except RemotingError as error:
        # As a connection answers it.
        return refusal(request, error)
    assert isinstance(answer, Command)
    return answer


def info(password: str | None = "new-secret-1", kind: str | None = None) -> bytes:
    return UserInfo(None, password, kind).encode()


async def test_only_a_super_user_makes_and_changes_super_users(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    table.put(User("root", "root-secret-1", UserType.SUPER))
    admin = AdminUsers(table)
    by_alice = [
        (3001, info(kind="Super"), "eve", 1, "The super user can only be create by super user"),
        (3002, info(kind="super"), "alice", 1, "The super user can only be update by super user"),
        (3002, info(), "root", 16, "The super user can only be update by super user"),
        (3002, info(), "inner", 16, "The super user can only be update by super user"),
        (3003, b"", "root", 16, "The super user can only be update by super user"),
    ]
    for code, body, name, expected, why in by_alice:
        answer = await asked(admin, code, body, "alice", username=name)
        assert (answer.code, answer.remark) == (expected, why)
    for code, body, name, _, why in by_alice:
        assert (await asked(admin, code, body, "root", username=name)).remark != why
    # By now alice is a super user herself.
    assert (await asked(admin, 3001, info(), "alice", username="carl")).code == 0
    await table.close()


async def test_the_users_of_the_configuration_file_are_shown_and_stay(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    admin = AdminUsers(table)
    listed = json.loads(bytes((await asked(admin, 3005)).body))
    assert listed == [{"username": "inner", "userType": "Super", "userStatus": "enable"}]
    kept = await asked(admin, 3003, username="inner")
    assert (kept.code, "take it out there" in str(kept.remark)) == (16, True)
    assert (await asked(admin, 3001, info(), username="inner")).remark == "The user is existed"
    assert (await asked(admin, 3002, info(), username="inner")).code == 0
    inner = table.directory.user("inner")
    assert inner is not None
    assert table.directory.secrets(inner) == ("inner-secret-1", "new-secret-1")
    await table.close()


@pytest.mark.parametrize("code", [3006, 3007])
async def test_a_policy_that_no_request_asks_for_is_refused_in_words(tmp_path: Path, code: int) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    for resource in ("Namespace:n", "Namespace:*"):
        entries = [PolicyEntryInfo("Topic:t", ["Pub"], None, "Allow"), PolicyEntryInfo(resource, ["All"], None, "Deny")]
        body = AclInfo("User:alice", [PolicyInfo(None, entries)]).encode()
        answer = await asked(AdminUsers(table), code, body, subject="User:alice")
        assert (answer.code, f"a policy about {resource} decides nothing" in str(answer.remark)) == (16, True)
    assert not table.policies
    await table.close()


def test_a_policy_about_a_namespace_that_is_there_is_kept(tmp_path: Path) -> None:
    entries = '{"resource":"Namespace:n","actions":["All"],"decision":"Deny"}'
    (tmp_path / "auth.json").write_text(
        '{"users":[{"username":"alice","password":"alice-secret-1"}],'
        f'"policies":{{"alice":[{{"policyType":"Custom","entries":[{entries}]}}]}}}}'
    )
    assert set(table_in(tmp_path).policies) == {"alice"}


@pytest.mark.parametrize(
    ("code", "body", "fields"),
    [
        (3001, b"secret-in-no-json", {"username": "x"}),
        (3001, b'{"password":["hunter22"]}', {"username": "x"}),
        (3002, b'"hunter22"', {"username": "alice"}),
        (3006, b"[1]", {"subject": "User:alice"}),
        (3006, b"{}", {"subject": "User:alice"}),
        (3006, b"x" * (1 << 20), {"subject": "User:alice"}),
    ],
)
async def test_absurd_bodies_cost_one_clear_error(
    tmp_path: Path, code: int, body: bytes, fields: dict[str, str]
) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    answer = await asked(AdminUsers(table), code, body, **fields)
    assert answer.code in {1, 29}
    assert "hunter22" not in str(answer.remark)
    await table.close()


async def test_a_user_has_a_bounded_number_of_policies(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    admin = AdminUsers(table)
    entries = [PolicyEntryInfo(f"Topic:t{number}", ["Pub"], None, "Allow") for number in range(1001)]
    answer = await asked(admin, 3006, AclInfo("User:alice", [PolicyInfo(None, entries)]).encode(), subject="User:alice")
    assert (answer.code, answer.remark) == (16, "a user has at most 1000 policies")
    # Of a resource that is none, RocketMQ would remove everything.
    table.set_policies("alice", MAY_SEND)
    assert (await asked(admin, 3008, subject="User:alice", resource="orders")).remark == "The resource is null."
    assert table.policies == {"alice": MAY_SEND}
    await table.close()


class Link:
    """What a connection remembers."""

    def __init__(self) -> None:
        self.attachments: dict[str, str] = {}

    def copied(self, admin: AdminUsers, request: Command) -> Command:
        try:
            return admin.copy(cast(Connection, self), request)
        except RemotingError as error:
            return refusal(request, error)

    def prove(self, admin: AdminUsers, proof: str) -> Command:
        return self.copied(admin, Command.request(ClassicCode.USERS, body=msgspec.json.encode(UsersRequest(proof))))

    def challenge(self, admin: AdminUsers) -> str:
        return msgspec.json.decode(self.prove(admin, "").body, type=UsersChallenge).challenge


async def test_secret_keys_are_given_to_who_proves_now_that_he_knows_the_brokers_own(tmp_path: Path) -> None:
    table, link = table_in(tmp_path), Link()
    table.put(ALICE)
    # While the brokers' key is being changed both count.
    table.put(User("inner", "new-secret-1", UserType.SUPER))
    admin = AdminUsers(table)
    for key in (INNER.secret_key, "new-secret-1"):
        proof = copy_proof(key, link.challenge(admin))
        answer = link.prove(admin, proof)
        assert json.loads(bytes(answer.body))["users"][0]["password"] == ALICE.secret
        # A proof is good once, and at its own connection.
        assert link.prove(admin, proof).code == 16
        other = Link()
        other.challenge(admin)
        assert other.prove(admin, proof).code == 16
    assert link.prove(admin, copy_proof(ALICE.secret, link.challenge(admin))).code == 16
    assert link.prove(admin, copy_proof(INNER.secret_key, "")).code == 16
    await table.close()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"proof":7}', b"{}"])
async def test_what_a_broker_signed_for_something_else_gets_no_secret_keys(tmp_path: Path, body: bytes) -> None:
    table = table_in(tmp_path)
    table.put(ALICE)
    # A registration that somebody recorded, under another code: the signature still fits.
    recorded = Command.request(RequestCode.REGISTER_BROKER, ext={"brokerName": "broker-a"}, body=body)
    sign(recorded, INNER)
    recorded.code = ClassicCode.USERS
    answer = Link().copied(AdminUsers(table), recorded)
    assert (answer.code, answer.body) == (16, b"")
    assert "users are copied by slaves only, which prove" in str(answer.remark)
    await table.close()


def test_nobody_copies_users_from_a_member_of_a_group(tmp_path: Path) -> None:
    member = leader(tmp_path)
    answer = Link().prove(AdminUsers(member.users), "")
    assert (answer.code, "in a Raft group users go through its log" in str(answer.remark)) == (16, True)


async def test_a_slave_has_its_masters_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_copy, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr("broker.metadata.feed.SOON_SECONDS", 0.01)
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master", inner=INNER)))
        master.users.put(ALICE)
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address, inner=INNER)))
        await slave.until(lambda: dict(slave.users.users) == {"alice": ALICE})
        master.users.set_policies("alice", MAY_SEND)
        await slave.until(lambda: slave.users.directory.denied("alice", SENDS, HOST) is None)
        master.users.delete("alice")
        await slave.until(lambda: not slave.users.users)
        # One that signs otherwise gets nothing, and says why.
        other = Credentials("inner", "another-secret")
        stranger = await exits.enter_async_context(
            copying(SlaveBroker(tmp_path / "other", master.address, inner=other))
        )
        master.users.put(ALICE)
        await stranger.until(lambda: "USERS" in stranger.copies.status()["refused"])
        assert not stranger.users.users
    assert RequestCode.AUTH_CREATE_USER not in master.asked


def test_a_group_without_users_proposes_none_and_who_has_no_such_file_yet_goes_on(tmp_path: Path) -> None:
    member = Member(tmp_path, ManualClock())
    member.role.become(3)
    entries = member.settle()
    assert entries
    member.write()
    assert not [operation for entry_ in entries for operation in read(entry_) if operation[1] == Table.USERS]
    # As a version has left it that knew no users.
    (tmp_path / "auth.json").unlink()
    again = Member(tmp_path, ManualClock())
    assert again.meta.load_stamps(GROUP, 2) is None


def test_in_a_group_a_change_counts_when_it_is_applied_and_is_taken_back_when_it_is_not(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.settle()
    member.users.put(ALICE)
    assert member.users.users == {"alice": ALICE}
    assert member.users.directory.user("alice") is None
    member.settle()
    assert member.users.directory.user("alice") == ALICE
    member.users.delete("alice")
    member.role.become(None)
    assert member.users.users == {"alice": ALICE}
    assert member.users.directory.user("alice") == ALICE


async def test_what_a_single_broker_knew_its_group_knows(tmp_path: Path) -> None:
    alone = table_in(tmp_path)
    alone.put(ALICE)
    alone.set_policies("alice", MAY_SEND)
    await alone.save()
    await alone.close()
    member = Member(tmp_path, ManualClock())
    member.role.become(3)
    entries = member.settle()
    assert entries
    follower = Member(tmp_path / "follower", ManualClock())
    for index, payload in enumerate(entries, 2):
        follower.meta.apply(index, payload)
    for each in (member, follower):
        assert each.users.directory.denied("alice", SENDS, HOST) is None
    assert follower.users.data_version == member.users.data_version
