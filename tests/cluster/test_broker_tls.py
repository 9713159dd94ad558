"""TLS with real processes: a Raft group and a pair that speak nothing else, and what who does not is told."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, classic_processes, namesrv_process, raft_processes
from raftmq import AdminClient, ClientError, ClientTls, ConsumeFrom, Message, MessageExt, Producer, PushConsumer
from runtime.config import load_properties
from tests.cluster.process_group import leader_of, until
from tests.cluster.test_raftmq_cli_errors import raftmq
from tests.parts.certificates import Authority, Signed


class Secured:
    """An authority, what servers are configured with, and what clients take."""

    def __init__(self, folder: Path, *, need_client: str = "none") -> None:
        self.authority = Authority(folder / "authority")
        cert, key = self.authority.sign("server")
        self.settings: dict[str, object] = {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": cert,
            "tls.server.keyPath": key,
            "tls.server.need.client.auth": need_client,
            "tls.server.trustCertPath": self.authority.cert,
            "useTLS": True,
            "tls.client.trustCertPath": self.authority.cert,
            "tls.client.certPath": cert,
            "tls.client.keyPath": key,
        }
        self.raft = {"raftTlsCertFile": cert, "raftTlsKeyFile": key, "raftTlsCaFile": self.authority.cert}
        self.tls = ClientTls(self.authority.cert)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@contextmanager
def running(*processes: ServerProcess) -> Iterator[None]:
    with ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
            process.launch()
        for process in processes:
            process.wait_ready()
        yield


def shakes_hands(address: str, authority: Authority, shown: Signed | None = None) -> bool:
    """Whether OpenSSL's own client gets through a handshake, and believes the server.

    With TLS 1.2: with 1.3 a client is through before the server has looked at its certificate.
    """
    own = [] if shown is None else ["-cert", shown.cert, "-key", shown.key]
    trusting = ["-CAfile", authority.cert, "-verify_return_error", "-verify_ip", "127.0.0.1"]
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, "-tls1_2", *trusting, *own],
        input=b"", capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    return done.returncode == 0 and b"Verify return code: 0 (ok)" in done.stdout


async def consumed(namesrv: str, tls: ClientTls, topic: str, count: int) -> list[bytes]:
    bodies: set[bytes] = set()
    enough = asyncio.Event()

    async def callback(messages: list[MessageExt]) -> None:
        bodies.update(bytes(message.body) for message in messages)
        if len(bodies) >= count:
            enough.set()

    consumer = PushConsumer("readers", namesrv, from_where=ConsumeFrom.FIRST_OFFSET, tls=tls)
    consumer.subscribe(topic)
    consumer.on_message(callback)
    async with consumer, asyncio.timeout(30):
        await enough.wait()
    return sorted(bodies)


async def test_a_raft_group_that_speaks_nothing_else(tmp_path: Path, secured: Secured) -> None:
    namesrv = namesrv_process(tmp_path / "namesrv", settings=secured.settings)
    members = raft_processes(tmp_path, 3, namesrv=namesrv.address, settings={**secured.settings, **secured.raft})
    with running(namesrv, *members):
        async with Producer("makers", namesrv.address, tls=secured.tls, send_timeout=10.0) as producer:
            for number in range(20):
                await producer.send(Message("Secret", b"%02d" % number))
            leader = await leader_of(members)
            leader.kill()
            for number in range(20, 40):
                await producer.send(Message("Secret", b"%02d" % number))
        assert await consumed(namesrv.address, secured.tls, "Secret", 40) == [b"%02d" % number for number in range(40)]
        # Who speaks none is told so, and who believes another authority hears why not.
        other = next(member for member in members if member is not leader)
        async with AdminClient(namesrv.address, tls=False) as admin:
            for ask in (admin.cluster_info(), admin.runtime_info(other.address)):
                with pytest.raises(Exception, match="this port takes TLS only"):
                    await ask
        stranger = Authority(tmp_path / "stranger")
        async with AdminClient(namesrv.address, tls=ClientTls(stranger.cert)) as admin:
            with pytest.raises(Exception, match="certificate is not believed"):
                await admin.cluster_info()
        for address in (namesrv.address, other.address):
            assert shakes_hands(address, secured.authority)
        # The command takes it from the environment.
        listed = raftmq(
            "cluster", "list", "-n", namesrv.address, RAFTMQ_TLS="true", RAFTMQ_TLS_CA=secured.authority.cert
        )
        assert (listed.returncode, other.address in listed.stdout) == (0, True), listed.stderr
        refused = raftmq("cluster", "list", "-n", namesrv.address)
        assert refused.returncode == 1
        assert "this port takes TLS only" in refused.stderr


async def test_a_pair_that_speaks_nothing_else(tmp_path: Path, secured: Secured) -> None:
    namesrv = namesrv_process(tmp_path / "namesrv", settings=secured.settings)
    master, slave = classic_processes(
        tmp_path, 1, role="SYNC_MASTER", namesrv=namesrv.address, settings=secured.settings
    )
    with running(namesrv, master, slave):
        until("a slave", lambda: len((master.state("/v1/ha") or {}).get("slaves", ())) == 1)
        async with Producer("makers", namesrv.address, tls=secured.tls) as producer:
            # Acknowledged only when the slave has it.
            await producer.send(Message("Secret", b"1"))
        assert await consumed(namesrv.address, secured.tls, "Secret", 1) == [b"1"]
    assert "without TLS" not in master.log.read_text(encoding="utf-8")


async def test_clients_that_must_show_a_certificate(tmp_path: Path) -> None:
    secured = Secured(tmp_path, need_client="require")
    own = secured.authority.sign("client", names="DNS:client")
    shown = ClientTls(secured.authority.cert, own.cert, own.key)
    namesrv = namesrv_process(tmp_path / "namesrv", settings=secured.settings)
    with running(namesrv):
        async with AdminClient(namesrv.address, tls=shown) as admin:
            await admin.cluster_info()
        async with AdminClient(namesrv.address, tls=secured.tls) as admin:
            with pytest.raises(Exception, match=r"wants a certificate|connection"):
                await admin.cluster_info()
        # The connection is ended before the task that shook hands comes to say why.
        until("the reason", lambda: "it shows no certificate" in namesrv.log.read_text(encoding="utf-8"))


async def test_each_port_takes_a_good_certificate_and_no_other(tmp_path: Path) -> None:
    secured = Secured(tmp_path, need_client="require")
    authority, foreign = secured.authority, Authority(tmp_path / "foreign", "foreign")
    # Of a Raft group's ports it is the secret, and the address, that tell whose it is; TLS comes before that.
    wanted = {"a good one": authority.sign("client", names="DNS:client")}
    unwanted: dict[str, Signed | None] = {
        "none": None,
        "an expired one": authority.sign("expired", days="-1"),
        "a foreign one": foreign.sign("client"),
    }
    namesrv = namesrv_process(tmp_path / "namesrv", settings=secured.settings)
    (master,) = classic_processes(tmp_path, 0, role="ASYNC_MASTER", settings=secured.settings)
    (member,) = raft_processes(tmp_path, 1, settings={**secured.settings, **secured.raft})
    with running(namesrv, master, member):
        ports = {
            "NameServer": namesrv.address,
            "broker": master.address,
            "HA": str((master.state("/v1/ha") or {})["haAddress"]),
            "HTTP": f"127.0.0.1:{master.http_port}",
            "Raft": load_properties(tmp_path / "n0" / "broker.conf")["dLegerPeers"].removeprefix("n0-"),
        }
        for port, address in ports.items():
            taken = [what for what, shown in {**wanted, **unwanted}.items() if shakes_hands(address, authority, shown)]
            assert taken == list(wanted), port


@pytest.mark.parametrize(
    ("tls", "variables", "why"),
    [
        (ClientTls("/nowhere/ca.pem"), {}, r"/nowhere/ca\.pem: No such file"),
        (None, {"RAFTMQ_TLS": "perhaps"}, "RAFTMQ_TLS=perhaps: it takes true or false"),
        (True, {"RAFTMQ_TLS_CA": "/nowhere/ca.pem"}, "No such file"),
        ("yes", {}, "tls takes True, False or a ClientTls, not str"),
    ],
)
def test_what_cannot_be_used_is_said_at_once(
    tls: bool | ClientTls | None, variables: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    for make in (Producer, PushConsumer):
        with pytest.raises(ClientError, match=why):
            make("group", "127.0.0.1:9876", tls=tls)
    with pytest.raises(ClientError, match=why):
        AdminClient("127.0.0.1:9876", tls=tls)
