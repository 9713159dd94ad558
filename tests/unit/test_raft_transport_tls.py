"""Links between members by TLS, with the contexts that raftTls* make: whose certificate is taken, and which one now."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

import runtime.tls
from broker.settings.raft_keys import RaftKeys, link_tls
from raft.network.transport import Tls
from raft.protocol.messages import MessageKind, RaftMessage
from runtime.config import ConfigError
from tests.parts.certificates import Authority, Signed
from tests.parts.raft_links import IMPATIENT, Party, introduce, note, started


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign")


def tls_of(signed: Signed, ca: str) -> Tls:
    made = link_tls(RaftKeys(raftTlsCertFile=signed.cert, raftTlsKeyFile=signed.key, raftTlsCaFile=ca))
    assert made is not None
    return made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_tls_carries_the_same_messages_and_keeps_plain_links_out(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "audit")
    tls = tls_of(authority.sign("member"), authority.cert)
    a, b, plain = Party("n0", tls=tls), Party("n1", tls=tls), Party("n2", limits=IMPATIENT)
    async with started(a, b, plain):
        plain.transport.set_peers({"n1": b.address})
        await introduce(a, b)
        data = bytes(3 << 20)
        fields = {"term": 1, "seq": 1, "prev_index": 0, "prev_term": 0, "commit": 0, "entries": [[1, 1, 0, len(data)]]}
        assert a.transport.send("n1", RaftMessage(MessageKind.APPEND, fields, (data,)))
        _, got = await b.messages.get()
        assert bytes(got.payload[0]) == data
        await until(lambda: "asked for Raft connection: refused (it speaks no TLS" in caplog.text)
        assert b.transport.refused["plain"] >= 1
        assert plain.transport.connected == set()


@pytest.mark.parametrize(
    ("signer", "names", "days", "words"),
    [
        ("authority", "IP:127.0.0.2", "2", "its certificate does not name 127.0.0.1, where n1 is in the group"),
        ("authority", "DNS:localhost", "2", "its certificate does not name 127.0.0.1, where n1 is in the group"),
        ("authority", "IP:127.0.0.1", "-1", "certificate has expired"),
        ("foreign", "IP:127.0.0.1", "2", "certificate signature failure|unable to get local issuer certificate"),
    ],
)
async def test_whose_certificate_is_wrong_is_let_in_by_nobody_and_lets_nobody_know_him(
    authority: Authority, foreign: Authority, caplog: pytest.LogCaptureFixture,
    signer: str, names: str, days: str, words: str,
) -> None:  # fmt: skip
    """`b` shows it to whom it dials, and to who dials it; it trusts the same authority as `a`."""
    caplog.set_level("INFO", "audit")
    wrong = {"authority": authority, "foreign": foreign}[signer].sign("wrong", names=names, days=days)
    a = Party("n0", secret=b"s", tls=tls_of(authority.sign("member"), authority.cert))
    b = Party("n1", secret=b"s", tls=tls_of(wrong, authority.cert))
    async with started(a, b):
        # Dialled: a's own TLS sees it.
        a.transport.set_peers({"n1": b.address})
        await until(lambda: "no connection to n1" in caplog.text)
        assert "certificate verify failed" in caplog.text
        a.transport.set_peers({"n1": ("127.0.0.1", 1)})
        # Dialling: a's port does, or who judges a member that has proved the secret.
        b.transport.set_peers({"n0": a.address})

        def refused() -> list[str]:
            lines = [record.getMessage() for record in caplog.records if record.name == "audit"]
            return [line for line in lines if any(word in line for word in words.split("|"))]

        await until(lambda: bool(refused()))
        assert refused()[0].startswith("127.0.0.1 asked for Raft connection: refused (")
        assert (a.transport.connected, b.transport.connected) == (set(), set())
        assert a.messages.empty()
        assert a.transport.hosts == set()


async def test_a_renewed_certificate_is_what_the_next_link_shows(
    authority: Authority, foreign: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.tls, "LOOK_SECONDS", 0.0)
    place, ca = Signed(str(tmp_path / "cert"), str(tmp_path / "key")), tmp_path / "ca"

    def put(by: Authority) -> None:
        renewed = by.sign("renewed")
        for source, target in ((renewed.cert, place.cert), (renewed.key, place.key), (by.cert, str(ca))):
            Path(target).write_bytes(Path(source).read_bytes())

    put(authority)
    tls = tls_of(place, str(ca))
    a, b = Party("n0", tls=tls), Party("n1", tls=tls)
    c = Party("n2", tls=tls_of(foreign.sign("third"), foreign.cert))
    async with started(a, b, c):
        await introduce(a, b)
        put(foreign)
        # The links that are open stay.
        assert a.transport.send("n1", note(1))
        assert (await b.messages.get())[1] == note(1)
        # A new member, and whoever else comes, sees the new one and nothing else.
        a.transport.set_peers({"n1": b.address, "n2": c.address})
        c.transport.set_peers({"n0": a.address})
        await c.linked("n0")
        await a.linked("n2")
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(*a.address, ssl=ssl.create_default_context(cafile=authority.cert))


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    assert link_tls(RaftKeys()) is None
    signed, other = authority.sign("a"), authority.sign("b")
    for keys in (
        RaftKeys(raftTlsCertFile=signed.cert, raftTlsKeyFile=other.key, raftTlsCaFile=authority.cert),
        RaftKeys(raftTlsCertFile=signed.cert, raftTlsKeyFile=signed.key, raftTlsCaFile=str(tmp_path / "none")),
    ):
        with pytest.raises(ConfigError, match="raftTlsCertFile, raftTlsKeyFile, raftTlsCaFile: "):
            link_tls(keys)
