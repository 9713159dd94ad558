"""auth/guard.py and auth/needs.py: who is let in, and that every code that is served has an answer to that."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from auth.directory import AccessDirectory
from auth.guard import UNPROVED, AccessGuard
from auth.model import Action, Decision, PolicyType, User, UserStatus, UserType, entry, resource_of
from auth.needs import BROKER, NAMESRV, Rule, Whom
from auth.settings import HIDDEN, AuthKeys, check_auth, directory_of, shown_config
from broker.leader_only import SAID_BY_MEMBERS, passed_on_for
from broker.server import Broker
from broker.settings.config import load_broker_config
from namesrv.config import load_namesrv_config
from namesrv.server import NameServer
from remoting.audit import user_of
from remoting.codes import ClassicCode, RaftCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.runs import RUNS
from remoting.signing import SIGNATURE, Credentials, sign
from runtime.config import ConfigError
from tests.parts.ha_site import free_port

ON = AuthKeys(authenticationEnabled=True, authorizationEnabled=True)
HOST = "192.0.2.1"
ADMIN, ALICE, OFF, INNER = (Credentials(name, f"{name}-secret") for name in ("admin", "alice", "off", "inner"))
USERS = {
    "admin": User("admin", "admin-secret", UserType.SUPER),
    "alice": User("alice", "alice-secret"),
    "off": User("off", "off-secret", UserType.NORMAL, UserStatus.DISABLE),
}


def directory(*allowed: tuple[str, Action], decisions_max: int = 100) -> AccessDirectory:
    """Three users; alice may do what is said here."""
    made = AccessDirectory(inner=INNER, decisions_max=decisions_max)
    entries = []
    for text, action in allowed:
        resource = resource_of(text)
        assert resource is not None
        entries.append(entry(resource, [action], Decision.ALLOW))
    made.take(USERS, {"alice": {PolicyType.CUSTOM: tuple(entries)}})
    return made


def guard(
    known: AccessDirectory, keys: AuthKeys = ON, needs: Mapping[int, Rule | Whom] = BROKER, *reserved: str
) -> AccessGuard:
    return AccessGuard(keys, known, needs, "DefaultCluster", frozenset(reserved))


def asked(code: int, who: Credentials | None = ALICE, body: bytes = b"", **fields: str) -> Command:
    request = Command.request(code, ext=fields, body=body)
    if who is not None:
        sign(request, who)
    return request


SEND = int(RequestCode.SEND_MESSAGE_V2)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (None, "username cannot be null."),
        (Credentials("mallory", "x"), "User:mallory is not found."),
        (OFF, "User:off is disabled."),
        (Credentials("alice", "wrong"), "check signature failed."),
        (ALICE, None),
        (ADMIN, None),
        (INNER, None),
    ],
)
def test_who_is_let_in(who: Credentials | None, why: str | None) -> None:
    request = asked(SEND, who, b"body", b="orders", a="g")
    assert guard(directory(("Topic:orders", Action.PUB))).refusal(HOST, request) == why


@pytest.mark.parametrize("damage", ["field", "more", "body", "signature", "none"])
def test_what_was_changed_on_the_way_is_refused(damage: str) -> None:
    request = asked(SEND, ALICE, b"body", b="orders", a="g")
    if damage == "field":
        request.ext["a"] = "h"
    elif damage == "more":
        request.ext["z"] = "1"
    elif damage == "body":
        request.body = b"bodY"
    elif damage == "signature":
        request.ext[SIGNATURE] = "é" * 28
    else:
        del request.ext[SIGNATURE]
    assert guard(directory(("*", Action.ALL))).refusal(HOST, request) == "check signature failed."


PULL = {"topic": "orders", "consumerGroup": "g"}
HEARTBEAT = json.dumps(
    {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "orders"}]}]}
).encode()
LOCKS = json.dumps({"consumerGroup": "g", "mqSet": [{"topic": "orders", "brokerName": "b", "queueId": 0}]}).encode()
BOTH = [("Topic:orders", Action.SUB), ("Group:g", Action.SUB)]


@pytest.mark.parametrize(
    ("code", "fields", "body", "needed"),
    [
        (10, {"topic": "orders"}, b"", [("Topic:orders", Action.PUB)]),
        (310, {"b": "orders", "a": "p"}, b"", [("Topic:orders", Action.PUB)]),
        (310, {"b": "%RETRY%g", "a": "other"}, b"", [("Group:g", Action.SUB)]),
        (320, {"b": "orders"}, b"", [("Topic:orders", Action.PUB)]),
        (325, {"b": "orders"}, b"", [("Topic:orders", Action.PUB)]),
        (11, PULL, b"", BOTH),
        (361, PULL, b"", BOTH),
        (200050, PULL, b"", BOTH),
        (200051, PULL, b"", BOTH),
        (200051, {"topic": "%RETRY%g_orders", "consumerGroup": "g"}, b"", [("Group:g", Action.SUB)]),
        (200053, {"topic": "%RETRY%g+orders", "consumerGroup": "g"}, b"", [("Group:g", Action.SUB)]),
        (
            200051,
            {"topic": "%RETRY%gx", "consumerGroup": "g"},
            b"",
            [("Group:g", Action.SUB), ("Group:gx", Action.SUB)],
        ),
        (11, {"topic": "%RETRY%g_h", "consumerGroup": "g"}, b"", [("Group:g", Action.SUB), ("Group:g_h", Action.SUB)]),
        (200151, {}, b'{"acks":[{"t":"orders","c":"g","so":1}]}', BOTH),
        (11, {"topic": "%RETRY%g", "consumerGroup": "g"}, b"", [("Group:g", Action.SUB)]),
        (11, {"topic": "%RETRY%h", "consumerGroup": "g"}, b"", [("Group:g", Action.SUB), ("Group:h", Action.SUB)]),
        (34, {}, HEARTBEAT, BOTH),
        (41, {}, LOCKS, BOTH),
        (36, {"group": "g"}, b"", [("Group:g", Action.SUB)]),
        (36, {"group": "g", "originTopic": "orders"}, b"", BOTH),
        (36, {"group": "g", "originTopic": "%RETRY%g"}, b"", [("Group:g", Action.SUB)]),
        (309, {"consumerGroup": "g", "topic": "orders"}, b"", [("Cluster:DefaultCluster", Action.UPDATE)]),
        (323, {"topic": "orders"}, b"", [("Topic:orders", Action.UPDATE)]),
        (323, {}, b"", [("Cluster:DefaultCluster", Action.UPDATE)]),
        (15, PULL, b"", [("Topic:orders", Action.UPDATE), ("Group:g", Action.SUB)]),
        (17, {"topic": "orders"}, b"", [("Topic:orders", Action.CREATE)]),
        (18, {}, b'{"topicConfigList":[{"topicName":"orders"}]}', [("Topic:orders", Action.CREATE)]),
        (200, {}, b'{"groupName":"g"}', [("Group:g", Action.CREATE)]),
        (215, {"topic": "orders"}, b"", [("Topic:orders", Action.DELETE)]),
        (207, {"groupName": "g"}, b"", [("Group:g", Action.DELETE)]),
        (222, {"topic": "orders", "group": "g"}, b"", [("Topic:orders", Action.UPDATE), ("Group:g", Action.UPDATE)]),
        (33, {"offset": "1"}, b"", [("Cluster:DefaultCluster", Action.GET)]),
        (33, {"offset": "1", "topic": "orders"}, b"", [("Topic:orders", Action.SUB)]),
        (314, {"srcGroup": "a", "destGroup": "g"}, b"", [("Group:a", Action.GET), ("Group:g", Action.UPDATE)]),
        (25, {}, b"a=b", [("Cluster:DefaultCluster", Action.UPDATE)]),
        (26, {}, b"", [("Cluster:DefaultCluster", Action.GET)]),
        (21, {}, b"", [("Cluster:DefaultCluster", Action.LIST)]),
        (3001, {"username": "x"}, b"{}", [("Cluster:DefaultCluster", Action.UPDATE)]),
        (3005, {}, b"", [("Cluster:DefaultCluster", Action.GET)]),
        (28, {}, b"", []),
        (37, {"transactionId": "t"}, b"", []),
        (325, {"b": "DefaultCluster_REPLY_TOPIC"}, b"", []),
        (324, {"topic": "x_REPLY_TOPIC"}, b"", [("Topic:x_REPLY_TOPIC", Action.PUB)]),
        (325, {"b": "xDefaultCluster_REPLY_TOPIC"}, b"", [("Topic:xDefaultCluster_REPLY_TOPIC", Action.PUB)]),
    ],
)
def test_what_a_request_takes_is_enough_and_nothing_of_it_is_too_much(
    code: int, fields: dict[str, str], body: bytes, needed: list[tuple[str, Action]]
) -> None:
    def refused(allowed: list[tuple[str, Action]]) -> str | None:
        return guard(directory(*allowed)).refusal(HOST, asked(code, ALICE, body, **fields))

    assert refused(needed) is None
    for left_out in needed:
        why = refused([each for each in needed if each != left_out])
        assert why is not None
        assert why.startswith("User:alice has no permission to access ")
        assert why.endswith(f" from {HOST}, no matched policies.")
    assert guard(directory()).refusal(HOST, asked(code, ADMIN, body, **fields)) is None


@pytest.mark.parametrize("code", [RaftCode.LEAVE, ClassicCode.PROMOTE, ClassicCode.USERS, 12345])
def test_what_is_between_brokers_and_what_nobody_knows_is_a_super_users(code: int) -> None:
    for keys in (ON, AuthKeys(authenticationEnabled=True)):
        made = guard(directory(("*", Action.ALL)), keys)
        assert made.refusal(HOST, asked(code, ALICE)) == "User:alice is no super user."
        assert made.refusal(HOST, asked(code, ADMIN)) is None
        assert made.refusal(HOST, asked(code, INNER)) is None


def test_authentication_alone_asks_for_no_permission() -> None:
    made = guard(directory(), AuthKeys(authenticationEnabled=True))
    assert made.refusal(HOST, asked(SEND, ALICE, b="orders")) is None
    assert made.refusal(HOST, asked(SEND, None, b="orders")) == "username cannot be null."


def test_who_need_not_sign_may_not_speak_for_others_either() -> None:
    keys = AuthKeys(authenticationEnabled=True, authenticationWhitelist="310")
    listed = guard(directory(), keys, BROKER, "raftHop", "raftUser")
    assert listed.refusal(HOST, asked(SEND, None, b="orders")) is None
    refused = listed.refusal(HOST, asked(SEND, None, b="orders", raftHop="1", raftUser="admin"))
    assert refused == "only brokers may say raftHop, raftUser, and sign it: username cannot be null."
    assert listed.refusal(HOST, asked(SEND, ALICE, b="orders", raftUser="admin")) is not None
    assert listed.refusal(HOST, asked(SEND, INNER, b="orders", raftHop="1")) is None


def test_a_name_that_nobody_has_looked_at_is_not_passed_on() -> None:
    keys = AuthKeys(authenticationEnabled=True, authenticationWhitelist="310")
    seen: list[Command] = []

    def handle(_connection: Connection, request: Command) -> None:
        seen.append(request)

    handlers = guard(directory(), keys, BROKER, "raftUser").guarded({SEND: handle, 11: handle})
    link = cast(Connection, _Peer())
    handlers[SEND](link, asked(SEND, Credentials("admin", "guessed"), b="orders"))
    handlers[11](link, asked(11, ADMIN, topic="orders", consumerGroup="g"))
    assert [(request.user, user_of(request)) for request in seen] == [("", ""), ("admin", "admin")]


def test_white_lists_are_of_codes() -> None:
    keys = AuthKeys(authenticationEnabled=True, authorizationEnabled=True, authenticationWhitelist="28, 310")
    made = guard(directory(("*", Action.ALL)), keys)
    assert made.refusal(HOST, asked(28, None)) is None
    # A name that nobody proved has no permissions.
    assert made.refusal(HOST, asked(310, None, b="orders")) == "username cannot be null."
    open_ = AuthKeys(
        authenticationEnabled=True,
        authorizationEnabled=True,
        authenticationWhitelist="310",
        authorizationWhitelist="310",
    )
    assert guard(directory(), open_).refusal(HOST, asked(310, None, b="orders")) is None


def test_only_brokers_speak_for_others() -> None:
    made = guard(directory(("*", Action.ALL)), ON, BROKER, "raftHop", "raftUser")
    why = made.refusal(HOST, asked(SEND, ADMIN, b="orders", raftHop="1"))
    assert why == "User:admin may not speak for others: raftHop"
    assert made.refusal(HOST, asked(SEND, INNER, b="orders", raftHop="1", raftUser="alice")) is None


def test_what_is_passed_on_is_decided_by_whom_it_is_for() -> None:
    known = directory(("Topic:orders", Action.PUB))
    made = AccessGuard(ON, known, BROKER, "DefaultCluster", SAID_BY_MEMBERS, spoken_for=passed_on_for)

    def passed_on(topic: str, **said: str) -> str | None:
        return made.refusal(HOST, asked(SEND, INNER, b"", b=topic, raftHop="1", **said))

    assert passed_on("orders", raftUser="alice") is None
    assert passed_on("other", raftUser="admin") is None
    why = passed_on("other", raftUser="alice", raftClientHost="198.51.100.7:4711")
    assert why == ("User:alice has no permission to access Topic:other from 198.51.100.7, no matched policies.")
    why = passed_on("orders")
    assert why == f"username cannot be null. {UNPROVED}"
    # What the brokers ask for themselves is not passed on.
    assert made.refusal(HOST, asked(SEND, INNER, b="other")) is None


def test_a_decision_is_forgotten_when_something_changes_and_the_table_of_them_is_bounded() -> None:
    known = directory(("Topic:orders", Action.PUB), decisions_max=3)
    made = guard(known)
    for topic in ("orders", "b", "c", "d", "e", "orders"):
        refused = made.refusal(HOST, asked(SEND, ALICE, b=topic)) is not None
        assert refused is (topic != "orders")
    assert len(known._decisions) == 3
    known.take(USERS, {})
    assert made.refusal(HOST, asked(SEND, ALICE, b="orders")) is not None
    known.take({name: user for name, user in USERS.items() if name != "alice"}, {})
    assert made.refusal(HOST, asked(SEND, ALICE, b="orders")) == "User:alice is not found."


def test_the_brokers_own_key_may_be_changed_while_they_run() -> None:
    known = directory()
    new = Credentials("inner", "new-secret")
    assert guard(known).refusal(HOST, asked(28, new)) == "check signature failed."
    known.take({**USERS, "inner": User("inner", "new-secret", UserType.NORMAL, UserStatus.DISABLE)}, {})
    for who in (INNER, new):
        assert guard(known).refusal(HOST, asked(ClassicCode.USERS, who)) is None


def test_a_handler_sees_no_signature() -> None:
    seen: list[dict[str, str]] = []

    def handler(_connection: Connection, request: Command) -> Command:
        seen.append(dict(request.ext))
        return Command.response(0)

    table = guard(directory()).guarded({28: handler})
    table[28](cast(Connection, _Peer()), asked(28, Credentials("alice", "alice-secret", "token"), x="1"))
    assert seen == [{"x": "1", "AccessKey": "alice"}]


class _Peer:
    peer = (HOST, 1)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"authorizationEnabled": True}, "takes authenticationEnabled=true"),
        (
            {"authenticationProvider": "com.me.Mine"},
            "authenticationProvider=com.me.Mine: Default",
        ),
        ({"authorizationMetadataProvider": "X"}, "LocalAuthorizationMetadataProvider: nothing else is available"),
        ({"authorizationStrategy": "X"}, "authorizationStrategy=X"),
        ({"authenticationWhitelist": "28;105"}, "it takes request codes"),
        ({"initAuthenticationUser": "admin:hunter22"}, "initAuthenticationUser: it takes"),
        ({"initAuthenticationUser": '{"username":"a","password":7}'}, "initAuthenticationUser: it takes"),
        ({"innerClientAuthenticationCredentials": '["hunter22"]'}, "innerClientAuthenticationCredentials: it takes"),
        ({"statefulAuthorizationCacheMaxNum": 0}, "above 0"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_without_showing_a_secret(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")) as refused:
        check_auth(AuthKeys(**values))
    assert "hunter22" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    keys = AuthKeys(initAuthenticationUser='{"username":"admin","password":"hunter22"}')
    assert "hunter22" not in repr(keys)
    assert "hunter22" not in repr(directory_of(keys).users)
    assert "hunter22" not in repr(Credentials("admin", "hunter22", "hunter22"))
    shown = shown_config({"initAuthenticationUser": keys.initAuthenticationUser, "brokerName": "b"})
    assert shown == {"initAuthenticationUser": HIDDEN, "brokerName": "b"}


@pytest.mark.parametrize("mode", ["master", "slave", "member"])
async def test_every_code_that_a_broker_serves_says_whom_it_is_for(tmp_path: Path, mode: str) -> None:
    values = {
        "listenPort": "0",
        "httpEnable": "false",
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": "1048576",
    }
    if mode == "member":
        values |= {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0", "dLegerPeers": f"n0-127.0.0.1:{free_port()}"}
    if mode == "slave":
        values |= {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "127.0.0.1:1"}
    config, store, _ = load_broker_config(values)
    broker = Broker(config, store)
    await broker.start()
    try:
        served, counted = set(broker._parts.handlers), set(broker._parts._limited)
    finally:
        await broker.close()
    # Runs are taken only where nobody has to sign, and nothing is counted.
    assert served - {int(code) for code in BROKER} == RUNS
    assert served - counted == RUNS
    assert {3001, 3010, 9123, 310, 11} <= served


def test_every_code_that_a_name_server_serves_says_whom_it_is_for(tmp_path: Path) -> None:
    config, _ = load_namesrv_config({"kvConfigPath": str(tmp_path / "kv.json")})
    assert set(NameServer(config)._handlers) == {int(code) for code in NAMESRV}


def test_no_rule_is_about_a_code_that_nobody_serves() -> None:
    assert not {int(code) for code in BROKER} & {int(code) for code in NAMESRV}


async def test_a_request_that_nobody_serves_leaves_a_line_when_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    known = guard(directory())
    fields = {"peer": (HOST, 1), "address": f"{HOST}:1", "loop": asyncio.get_running_loop()}
    connection = cast(Connection, SimpleNamespace(**fields))
    with caplog.at_level("INFO", "audit"):
        assert known.unserved(connection, asked(9999, ADMIN)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert known.unserved(connection, asked(9999, None)).code == ResponseCode.NO_PERMISSION
    assert caplog.messages == [f"{HOST}:1 asked for code 9999: refused with 16 (username cannot be null.)"]
