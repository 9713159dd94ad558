"""The official C++ client with session credentials under access control: let in, and refused with a wrong key."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from raftmq import AdminClient, Credentials
from tests.interop.conftest import PROGRAM, answer_of

ADMIN = Credentials("admin", "admin-secret-1")
ALICE = {"access_key": "alice", "secret_key": "alice-secret-1"}
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret-1"}),
}
Asked = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=[1, 3], ids=["single", "raft"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("acl")
    settings = {**SETTINGS, "auditLogPath": str(folder / "audit.jsonl")}
    with LocalCluster(folder, nodes=request.param, broker_settings=settings) as running:
        asyncio.run(users(running.address))
        yield running


async def users(address: str) -> None:
    async with AdminClient(address, credentials=ADMIN) as admin:
        await admin.create_topic("orders", read_queues=2, write_queues=2)
        await admin.create_user("alice", ALICE["secret_key"])
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"])
        await admin.set_policy("alice", "Group:g_acl", ["Sub"])


@pytest.fixture
def ask(guarded: LocalCluster, tmp_path: Path) -> Asked:
    """Give an order to the C++ client, which may fail at it."""

    def order(do: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(PROGRAM)],
            input=json.dumps({"do": do, "namesrv": guarded.address, **fields}),
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return order


def sending(topic: str = "orders") -> dict[str, Any]:
    return {"group": "p_acl", "topic": topic, "how": "sync", "messages": [{"body": "hello", "keys": "k", "tags": "t"}]}


def test_with_its_credentials_it_sends_and_consumes(ask: Asked) -> None:
    sent = ask("send", **sending(), **ALICE)
    assert answer_of(sent)[0]["status"] == 0
    got = ask("push", group="g_acl", topic="orders", count=1, **ALICE)
    assert [message["body"] for message in answer_of(got)][:1] == ["hello"]


def test_with_a_wrong_key_it_is_refused(ask: Asked, guarded: LocalCluster) -> None:
    refused = ask("send", **sending(), **{**ALICE, "secret_key": "guessed-wrong-1"})
    assert refused.returncode != 0
    lines = [json.loads(line) for line in (guarded.folder / "audit.jsonl").read_text().splitlines()]
    told = {(line["user"], line["asked"], line["outcome"]) for line in lines if line.get("code") == "16"}
    why = "refused with 16 (check signature failed.)"
    # Whatever it asked first: what is refused again within a while is told once.
    assert {("alice", asked, why) for asked in ("HEART_BEAT", "SEND_MESSAGE", "SEND_MESSAGE_V2")} & told
    assert {user for user, _, _ in told} == {"alice"}
