"""Access control of a master and its slave, as processes: the slave knows the users, and each proves who it is."""

import asyncio
import json
from pathlib import Path

from chaos.host.local import LocalCluster
from raftmq import AdminClient, Credentials, Message, Producer
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RequestCode
from remoting.command import Command
from remoting.headers.registry import GetMaxOffsetRequestHeader
from remoting.signing import sign

ADMIN, ALICE = Credentials("admin", "admin-secret-1"), Credentials("alice", "alice-secret-1")
INNER = Credentials("inner", "inner-secret-1")
SETTINGS = {
    "slaveMetadataMs": 3_600_000,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
}
# The slave goes by a change when it is told of it, or never: by the clock it copies nothing here.
CHANGE_SECONDS = 60.0


def test_a_slave_goes_by_its_masters_users(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=2, mode="async", broker_settings=SETTINGS) as pair:
        asyncio.run(users_of_both(pair.address))


async def users_of_both(namesrv: str) -> None:
    async with AdminClient(namesrv, credentials=ADMIN) as admin:
        brokers = {broker.broker_id: broker.address for broker in await admin.brokers()}
        await admin.create_topic("orders")
        await admin.create_user("alice", ALICE.secret_key)
        await admin.set_policy("alice", "Topic:orders", ["Pub"])
        async with Producer("p", namesrv, credentials=ALICE) as producer:
            await producer.send(Message("orders", b"hello"))
        await answered(brokers[1], 16, "has no permission to access Topic:orders")
        await admin.set_policy("alice", "Topic:orders", ["Pub", "Sub"])
        await answered(brokers[1], 0)
        await admin.set_policy("alice", "Topic:orders", ["Sub"], allow=False)
        await answered(brokers[1], 16, "has no permission to access Topic:orders")
        await admin.set_policy("alice", "Topic:orders", ["Sub"])
        await answered(brokers[1], 0)
        await no_secrets(brokers[0])
        await admin.update_user("alice", enabled=False)
        await answered(brokers[1], 16, "User:alice is disabled.")


async def no_secrets(master: str) -> None:
    """What a broker signed once, recorded and sent again under another code, is refused in words."""
    client = RemotingClient()
    try:
        recorded = Command.request(RequestCode.REGISTER_BROKER, ext={"brokerName": "broker-a"}, body=b"{}")
        sign(recorded, INNER)
        recorded.code = ClassicCode.USERS
        answer = await client.invoke(master, recorded)
        assert (answer.code, bytes(answer.body)) == (16, b"")
        assert str(answer.remark).startswith("users are copied by slaves only")
    finally:
        await client.close()


async def answered(address: str, code: int, words: str = "") -> None:
    """Return when a broker answers alice so who asks what takes Sub of the topic."""
    client = RemotingClient(credentials=ALICE)
    try:
        async with asyncio.timeout(CHANGE_SECONDS):
            while True:
                header = GetMaxOffsetRequestHeader(topic="orders", queueId=0)
                answer = await client.invoke(address, Command.request(RequestCode.GET_MAX_OFFSET, header))
                if answer.code == code and words in str(answer.remark):
                    return
                await asyncio.sleep(0.01)
    finally:
        await client.close()
