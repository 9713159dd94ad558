"""TLS: keys that fit together, contexts that follow their files, and a door that tells TLS from plain."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import runtime.tls
import runtime.tls_door
from broker.settings.config import load_broker_config
from namesrv.config import load_namesrv_config
from runtime.config import NOT_SHOWN, ConfigError, config_values
from runtime.listening import stop_accepting
from runtime.tls import (
    ClientTls,
    ServerTls,
    TlsKeys,
    client_contexts,
    http_tls,
    names_host,
    outgoing_tls,
    server_tls,
    tls_warnings,
)
from runtime.tls_door import TlsDoor, listen
from tests.parts.certificates import Authority, Signed


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("server")


class Echo(asyncio.Protocol):
    """Answers what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def keys(signed: Signed, **others: str) -> TlsKeys:
    return replace(TlsKeys(tlsServerCertPath=signed.cert, tlsServerKeyPath=signed.key), **others)  # type: ignore[arg-type]


@asynccontextmanager
async def door(tls: ServerTls | None, made: Callable[[], asyncio.BaseProtocol] = Echo) -> AsyncIterator[int]:
    server = await listen("test", made, "127.0.0.1", 0, backlog=10, tls=tls)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        await stop_accepting(server)
        await server.wait_closed()


async def said(port: int, context: ssl.SSLContext | None, words: bytes = b"hello") -> bytes:
    """What an echo answers; b"" when the connection ends instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(words)
        return await reader.read(len(words))
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether a connection ends, in whatever way, without having said anything."""
    try:
        return not await reader.read()
    except ConnectionError:
        return True


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "audit"]


def trusting(authority: Authority, **others: str) -> ssl.SSLContext:
    return client_contexts(ClientTls(authority.cert, **others)).current()  # type: ignore[arg-type]


async def test_a_permissive_port_takes_both(
    authority: Authority, signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(server_tls(keys(signed))) as port:
        assert await said(port, None) == b"hello"
        assert await said(port, trusting(authority)) == b"hello"
        # Its first byte says that a handshake follows, and none does.
        monkeypatch.setattr(runtime.tls_door, "HANDSHAKE_SECONDS", 0.05)
        assert await said(port, None, b"\x16") == b""


async def test_an_enforcing_port_takes_tls_only(
    authority: Authority, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "audit")
    async with door(server_tls(keys(signed, tlsServerMode="enforcing"))) as port:
        assert await said(port, None) == b""
        assert audited(caplog) == [
            "127.0.0.1 asked for test connection: refused (it speaks no TLS, which is enforced here)"
        ]
        assert await said(port, trusting(authority)) == b"hello"


async def test_a_disabled_port_takes_none(signed: Signed) -> None:
    assert server_tls(keys(signed, tlsServerMode="disabled")) is None
    assert server_tls(TlsKeys()) is None


async def test_clients_show_certificates_where_they_are_wanted(
    authority: Authority, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    tls = server_tls(keys(signed, tlsServerNeedClientAuth="require", tlsServerTrustCertPath=authority.cert))
    own = authority.sign("client", names="DNS:client")
    async with door(tls) as port:
        assert await said(port, trusting(authority, cert=own.cert, key=own.key)) == b"hello"
        # With TLS 1.3 a client hears of it after its own side of the handshake is done.
        with contextlib.suppress(ssl.SSLError):
            assert await said(port, trusting(authority)) == b""
    assert "127.0.0.1 is refused: it shows no certificate" in caplog.text


@pytest.mark.parametrize("mode", ["require", "optional"])
@pytest.mark.parametrize(
    ("signer", "days", "why"), [("own", "-1", "certificate has expired"), ("other", "2", "issuer")]
)
async def test_an_expired_or_foreign_certificate_of_a_client_is_not_taken(
    authority: Authority, signed: Signed, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    mode: str, signer: str, days: str, why: str,
) -> None:  # fmt: skip
    caplog.set_level("INFO", "audit")
    tls = server_tls(keys(signed, tlsServerNeedClientAuth=mode, tlsServerTrustCertPath=authority.cert))
    by = {"own": authority, "other": Authority(tmp_path, "other")}[signer]
    wrong = by.sign("client", names="DNS:client", days=days)
    async with door(tls) as port:
        with contextlib.suppress(ssl.SSLError):
            assert await said(port, trusting(authority, cert=wrong.cert, key=wrong.key)) == b""
    (line,) = audited(caplog)
    assert line.startswith("127.0.0.1 asked for test connection: refused (the other side's certificate is not believed")
    assert why in line


@pytest.mark.parametrize(
    ("names", "days", "why"),
    [("IP:127.0.0.2", "2", "IP address mismatch"), ("DNS:name", "2", "mismatch"), ("IP:127.0.0.1", "-1", "expired")],
)
async def test_what_a_client_does_not_believe(authority: Authority, names: str, days: str, why: str) -> None:
    wrong = authority.sign("wrong", names=names, days=days)
    async with door(server_tls(keys(wrong))) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match=why) as refused:
            await said(port, trusting(authority))
        assert "the other side's certificate is not believed: " in runtime.tls.tls_words(refused.value)
        assert await said(port, client_contexts(ClientTls(verify=False)).current()) == b"hello"


async def test_an_authority_that_nobody_trusts(tmp_path: Path, authority: Authority, signed: Signed) -> None:
    other = Authority(tmp_path, "other")
    async with door(server_tls(keys(signed))) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await said(port, trusting(other))
        with pytest.raises(ssl.SSLCertVerificationError):
            await said(port, client_contexts(ClientTls()).current())
        assert await said(port, client_contexts(ClientTls(authority.cert, check_host=False)).current()) == b"hello"


async def test_changed_certificates_are_served_and_damaged_ones_are_not(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime.tls, "LOOK_SECONDS", 0.0)
    other = Authority(tmp_path / "other")
    first, second = authority.sign("first"), other.sign("second")
    place = Signed(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))

    def put(signed: Signed) -> None:
        for source, target in zip(signed, place, strict=True):
            Path(target).write_bytes(Path(source).read_bytes())

    put(first)
    async with door(server_tls(keys(place))) as port:
        assert await said(port, trusting(authority)) == b"hello"
        put(second)
        assert await said(port, trusting(other)) == b"hello"
        Path(place.cert).write_text("no certificate", encoding="ascii")
        assert await said(port, trusting(other)) == b"hello"
        assert "changed certificates cannot be used, those before them stay" in caplog.text
        put(first)
        assert await said(port, trusting(authority)) == b"hello"


async def test_who_says_nothing_is_closed_and_bounded(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.tls_door, "WAITING_MAX", 2)
    async with door(server_tls(keys(signed))) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        # The first of three makes room.
        assert await ended(silent[0][0])
        assert await said(port, None) == b"hello"
        monkeypatch.setattr(runtime.tls_door, "HANDSHAKE_SECONDS", 0.05)
        late_reader, late = await asyncio.open_connection("127.0.0.1", port)
        assert await ended(late_reader)
        for _, writer in (*silent, (None, late)):
            writer.close()


async def test_stalled_handshakes_of_one_address_leave_room_and_end(
    authority: Authority, signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.tls_door, "SHAKING_PER_ADDRESS_MAX", 2)
    monkeypatch.setattr(runtime.tls_door, "HANDSHAKE_SECONDS", 0.3)
    async with door(server_tls(keys(signed))) as port:
        stalled = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in stalled:
            writer.write(b"\x16\x03\x01")
        # Behind them; its turn comes when theirs are given up.
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await said(port, trusting(authority))
        for reader, writer in stalled:
            assert await ended(reader)
            writer.close()
        # A true handshake has the time that a busy machine needs for it.
        monkeypatch.setattr(runtime.tls_door, "HANDSHAKE_SECONDS", 30.0)
        assert await said(port, trusting(authority)) == b"hello"


async def test_a_door_that_closes_lets_go_of_all(signed: Signed) -> None:
    server = await listen("test", Echo, "127.0.0.1", 0, backlog=10, tls=server_tls(keys(signed)))
    assert isinstance(server, TlsDoor)
    port = int(server.sockets[0].getsockname()[1])
    waiting, writer = await asyncio.open_connection("127.0.0.1", port)
    shaking, other = await asyncio.open_connection("127.0.0.1", port)
    other.write(b"\x16")
    await asyncio.sleep(0)
    await stop_accepting(server)
    await server.wait_closed()
    assert await ended(waiting)
    assert await ended(shaking)
    for each in (writer, other):
        each.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("names", "host", "named"),
    [
        ("IP:127.0.0.1,DNS:broker-1", "127.0.0.1", True),
        ("IP:127.0.0.1,DNS:broker-1", "broker-1", True),
        ("IP:127.0.0.1,DNS:broker-1", "127.0.0.2", False),
        ("DNS:127.0.0.1", "127.0.0.1", False),
        ("IP:fd00::1", "fd00:0:0::1", True),
        ("DNS:*.example.com", "B-1.example.com.", True),
        ("DNS:*.example.com", "example.com", False),
        ("DNS:*.example.com", "a.b.example.com", False),
        ("DNS:*.com", "example.com", False),
        ("DNS:other", "common", False),
        ("IP:127.0.0.1", "common", True),
    ],
)
def test_what_a_certificate_names(authority: Authority, names: str, host: str, *, named: bool) -> None:
    made = authority.sign("common", names=names)
    certificate = ssl._ssl._test_decode_cert(made.cert)  # type: ignore[attr-defined] # as getpeercert gives it
    assert names_host(certificate, host) is named


def test_http_of_this_machine_may_be_plain(signed: Signed) -> None:
    enforcing = keys(signed, tlsServerMode="enforcing")
    local, far = http_tls(enforcing, "127.0.0.1"), http_tls(enforcing, "0.0.0.0")
    assert local is not None
    assert far is not None
    assert (local.enforcing, far.enforcing) == (False, True)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"tls.server.mode": "always"}, "it takes disabled, permissive, enforcing"),
        ({"tls.server.mode": "enforcing"}, "it takes tls.server.certPath"),
        ({"tls.server.certPath": "/a"}, "of use together only"),
        ({"tls.client.keyPath": "/a"}, "of use together only"),
        ({"tls.server.need.client.auth": "perhaps"}, "it takes none, optional, require"),
        ({"tls.server.need.client.auth": "require"}, "it takes tls.server.trustCertPath"),
        ({"tls.client.authServer": "perhaps"}, "it takes true or false"),
        ({"tls.config.file": "/etc/tls.properties"}, "TLS has its keys in this file"),
    ],
)
def test_keys_that_cannot_be_used_together_are_refused(values: dict[str, str], why: str) -> None:
    for load in (load_broker_config, load_namesrv_config):
        with pytest.raises(ConfigError, match=why):
            load(values)


def test_the_keys_have_rocketmqs_names_and_passwords_are_not_shown(authority: Authority) -> None:
    own = authority.sign("locked", password="s3cret")
    values = {"tls.server.certPath": own.cert, "tls.server.keyPath": own.key, "tls.server.keyPassword": "s3cret"}
    made, _store, unknown = load_broker_config({**values, "useTLS": "true", "tls.test.mode.enable": "true"})
    assert unknown == []
    shown = config_values(made)
    assert shown["tls.server.keyPassword"] == NOT_SHOWN
    assert shown["tls.client.keyPassword"] == ""
    assert server_tls(made) is not None
    wrong, _, _ = load_broker_config({**values, "tls.server.keyPassword": "another"})
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath"):
        server_tls(wrong)
    unlocked, _, _ = load_broker_config({**values, "tls.server.keyPassword": ""})
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath"):
        server_tls(unlocked)


def test_files_that_cannot_be_read_are_named(tmp_path: Path, signed: Signed) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath=.*No such file"):
        server_tls(keys(Signed(str(tmp_path / "none"), signed.key)))
    with pytest.raises(ConfigError, match=r"tls\.server\.trustCertPath=.*No such file"):
        server_tls(keys(signed, tlsServerNeedClientAuth="optional", tlsServerTrustCertPath=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"tls\.client: the authority=.*No such file"):
        outgoing_tls(TlsKeys(useTLS=True, tlsClientTrustCertPath=str(tmp_path / "none")))
    assert outgoing_tls(TlsKeys()) is None


def test_what_is_probably_not_meant_is_said(signed: Signed) -> None:
    assert list(tls_warnings(keys(signed))) == []
    Path(signed.key).chmod(0o644)
    assert "others of this machine may read it" in "".join(tls_warnings(keys(signed)))
    Path(signed.key).chmod(0o600)
    assert "any certificate is believed" in "".join(tls_warnings(TlsKeys(useTLS=True, tlsClientAuthServer=False)))
