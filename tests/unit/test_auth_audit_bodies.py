"""auth/audit_bodies.py: a line of the audit log says what a body changes, and no secret of it."""

import json
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from auth.audit_bodies import AUDIT_BODIES, BODY_BYTES_MAX, shown_body
from remoting.admission import Admission
from remoting.audit import BODY_SHOWN_MAX, CHANGES, audited
from remoting.codes import NamesrvCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Reply

SECRET = "hunter22"
USER = json.dumps({"username": "admin", "password": SECRET})


@pytest.mark.parametrize("code", [RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flushDiskType=SYNC_FLUSH\n#no\ntraceOn = true\n", "flushDiskType=SYNC_FLUSH; traceOn=true"),
        ("raftSecretFile=conf/raft.secret", "raftSecretFile=conf/raft.secret"),
        (f"initAuthenticationUser={USER}", "initAuthenticationUser=(hidden)"),
        (f"INITAUTHENTICATIONUSER={SECRET}", "INITAUTHENTICATIONUSER=(hidden)"),
        (f"tls.server.keyPassword={SECRET}\nkey=", "tls.server.keyPassword=(hidden); key="),
        (f"anything={USER}", "anything=(hidden)"),
        (f"initAuthenticationUser {USER}", "a line that is no key=value"),
        (f"a={'x' * 5000}\nadminAllowFrom=*", f"a={'x' * 100}…; adminAllowFrom=*"),
    ],
)
def test_a_change_of_configuration_is_told_by_key_and_value(code: int, text: str, said: str) -> None:
    assert shown_body(code, text.encode()) == said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"username": "bob", "password": SECRET, "userType": "Super", "userStatus": "enable"},
            "userType=Super; userStatus=enable; password=(hidden)",
        ),
        ({"userStatus": "disable"}, "userStatus=disable"),
        ({"password": SECRET}, "password=(hidden)"),
    ],
)
def test_of_a_user_type_and_status_are_told_and_that_there_is_a_password(fields: dict[str, str], said: str) -> None:
    for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER):
        assert shown_body(code, json.dumps(fields).encode()) == said


def test_policies_are_told_with_their_subject() -> None:
    entries = [
        {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"},
        {"resource": "Group:*", "actions": ["Sub"], "sourceIps": ["10.0.0.0/8", "192.0.2.1"], "decision": "Deny"},
    ]
    body = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": entries}, {"entries": None}]}
    for code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL):
        assert shown_body(code, json.dumps(body).encode()) == (
            "User:alice; Custom Topic:orders Pub,Sub Allow; Custom Group:* Sub Deny from 10.0.0.0/8,192.0.2.1"
        )


@pytest.mark.parametrize("code", sorted(AUDIT_BODIES))
def test_what_cannot_be_read_or_is_too_long_is_said_and_not_quoted(code: int) -> None:
    assert code in CHANGES
    assert shown_body(code, b"") == ""
    assert shown_body(code, f'{{"password":"{SECRET}'.encode() + b"\xff") == "it cannot be read"
    assert shown_body(code, b"x" * (BODY_BYTES_MAX + 1)).startswith("more than the 65536 bytes")


def test_of_other_bodies_nothing_is_said() -> None:
    assert shown_body(RequestCode.SEND_MESSAGE_V2, b"a message") == ""


def done(_: Connection, __: Command) -> Reply:
    return Command.response(ResponseCode.SUCCESS)


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=true", "traceOn=true"),
        (RequestCode.SET_MESSAGE_REQUEST_MODE, b'{"topic":"T","mode":"POP"}', '{"topic":"T","mode":"POP"}'),
        (NamesrvCode.FORGET, b'{"broker":"b"}', '{"broker":"b"}'),
    ],
)
@pytest.mark.parametrize("taken", [True, False])
def test_lines_of_what_was_done_and_what_was_refused_say_it(
    caplog: pytest.LogCaptureFixture, code: int, body: bytes, said: str, taken: bool
) -> None:
    fields = {"peer": ("10.0.0.5", 1), "own_host": "10.0.0.1", "loop": SimpleNamespace(time=lambda: 1.0)}
    connection = cast(Connection, SimpleNamespace(**fields, address="10.0.0.5:1"))
    handle = audited({int(code): done}, Admission("*" if taken else "192.0.2.1"), shown_body)[code]
    with caplog.at_level(logging.INFO, "audit"):
        handle(connection, Command.request(code, body=body))
    (record,) = caplog.records
    assert f" asked for {CHANGES[code]} and a body of {len(body)} bytes ({said}): " in record.message
    assert record.__dict__["audit"]["body"] == said
    assert record.__dict__["audit"]["code"] == ("0" if taken else "16")


def test_a_line_about_a_long_body_is_cut_and_plain(caplog: pytest.LogCaptureFixture) -> None:
    connection = cast(Connection, SimpleNamespace(peer=("127.0.0.1", 1), own_host="127.0.0.1", address="127.0.0.1:1"))
    handle = audited({int(RequestCode.SET_MESSAGE_REQUEST_MODE): done}, Admission(), shown_body)[401]
    with caplog.at_level(logging.INFO, "audit"):
        handle(connection, Command.request(401, body=b"\x1b[2J\n" * 1000))
    (line,) = caplog.messages
    assert line.isprintable()
    assert len(line) < BODY_SHOWN_MAX + 200
