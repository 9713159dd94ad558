"""The HA port by TLS, with the contexts that tls.server.* and tls.client.* make: whose certificate is taken."""

from pathlib import Path

import pytest

from broker.master_slave.ha_client import State
from runtime.tls import TlsKeys, outgoing_tls, server_tls
from tests.parts.certificates import Authority, Signed
from tests.parts.ha_site import pair, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign")


def keys(signed: Signed, ca: str) -> TlsKeys:
    return TlsKeys(
        useTLS=True,
        tlsServerMode="enforcing",
        tlsServerCertPath=signed.cert,
        tlsServerKeyPath=signed.key,
        tlsServerNeedClientAuth="require",
        tlsServerTrustCertPath=ca,
        tlsClientTrustCertPath=ca,
        tlsClientCertPath=signed.cert,
        tlsClientKeyPath=signed.key,
    )


@pytest.mark.parametrize(
    ("side", "signer", "names", "days", "words"),
    [
        ("master", "authority", "IP:127.0.0.2", "2", "IP address mismatch"),
        ("master", "authority", "IP:127.0.0.1", "-1", "certificate has expired"),
        ("master", "foreign", "IP:127.0.0.1", "2", "certificate"),
        ("slave", "authority", "IP:127.0.0.1", "-1", "certificate has expired"),
        ("slave", "foreign", "IP:127.0.0.1", "2", "certificate"),
        # A slave is known by its certificate's authority; where it connects from is its own affair.
        ("slave", "authority", "IP:127.0.0.2", "2", ""),
        ("nobody", "authority", "", "", ""),
    ],
)
async def test_whose_certificate_is_taken(
    tmp_path: Path, authority: Authority, foreign: Authority, caplog: pytest.LogCaptureFixture,
    side: str, signer: str, names: str, days: str, words: str,
) -> None:  # fmt: skip
    caplog.set_level("INFO", "audit")
    good = keys(authority.sign("good"), authority.cert)
    wrong = good
    if side != "nobody":
        signed = {"authority": authority, "foreign": foreign}[signer].sign("wrong", names=names, days=days)
        wrong = keys(signed, authority.cert)
    async with pair(tmp_path) as (master, slave):
        master.tls = server_tls(wrong if side == "master" else good)
        slave.tls = outgoing_tls(wrong if side == "slave" else good)
        await master.restart()
        await slave.stop()
        await slave.start()
        slave.follow()
        if not words:
            await slave.caught_up()
            return
        if side == "master":
            await until(lambda: words in slave.client.status()["why"])
            assert "certificate is not believed" in slave.client.status()["why"]
        else:
            await until(lambda: "asked for HA connection: refused" in caplog.text)
            (line, *_) = [record.getMessage() for record in caplog.records if record.name == "audit"]
            assert words in line
        assert slave.client.state is not State.FOLLOWING
        assert (master.ha.in_sync(), slave.written) == (0, 0)
