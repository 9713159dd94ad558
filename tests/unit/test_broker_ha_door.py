"""ha_door.py: to whom a master opens its HA port, and what a start says of it, or refuses."""

from pathlib import Path

import pytest

from broker.settings.config import load_broker_config
from runtime.config import ConfigError

GUARDED = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"brokers","secretKey":"12345678"}',
}
FAR = {"bindAddress": "10.0.0.1"}
EXPLICIT = {"haListenPort": "10912"}
SYNC = {"brokerRole": "SYNC_MASTER"}
SECRET = {"haSecretFile": "/etc/ha.secret"}
CERTIFICATES = {
    "tls.server.mode": "enforcing",
    "tls.server.certPath": "c",
    "tls.server.keyPath": "k",
    "tls.server.need.client.auth": "require",
    "tls.server.trustCertPath": "t",
}
PERMISSIVE = {**CERTIFICATES, "tls.server.mode": "permissive"}


@pytest.mark.parametrize(
    ("values", "opens", "level", "said"),
    [
        # On loopback as in RocketMQ: a slave may come to a master that has run for long.
        ({}, True, "", ""),
        ({"haListenPort": "-1"}, False, "", ""),
        (GUARDED, True, "WARNING", "every user of this machine gets every message there"),
        ({**GUARDED, **SECRET}, True, "", ""),
        # Where others reach it, for who proves something,
        ({**FAR, **SECRET}, True, "", ""),
        ({**FAR, **CERTIFICATES}, True, "", ""),
        ({**FAR, **GUARDED, **SECRET}, True, "", ""),
        ({**FAR, **GUARDED, **SYNC, **CERTIFICATES}, True, "", ""),
        # or when slaves are expected.
        ({**FAR, **EXPLICIT}, True, "WARNING", "whoever reaches the HA port at 10.0.0.1 gets every message"),
        ({**FAR, **SYNC}, True, "WARNING", "counts as a slave: name a file with the same secret in haSecretFile"),
        (FAR, False, "INFO", "or name the port in haListenPort"),
        # Plain connections show no certificate.
        ({**FAR, **PERMISSIVE}, False, "INFO", "no port for slaves is open"),
        ({**FAR, **GUARDED}, False, "INFO", "no port for slaves is open"),
        ({**FAR, **GUARDED, **EXPLICIT, "haListenPort": "-1"}, False, "", ""),
    ],
)
def test_to_whom_the_port_is_open(values: dict[str, str], *, opens: bool, level: str, said: str) -> None:
    door = load_broker_config(values)[0].ha_door()
    assert door.opens is opens
    words = list(door.words())
    if not said:
        assert words == []
        return
    ((number, text),) = words
    assert (number, said in text) == ({"INFO": 20, "WARNING": 30}[level], True), text


@pytest.mark.parametrize("more", [EXPLICIT, SYNC, {**EXPLICIT, **PERMISSIVE}])
def test_with_access_control_no_master_gives_its_log_to_whoever_comes(more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"HA port at 10\.0\.0\.1 gets every message without a signature.*haSecret"):
        load_broker_config({**FAR, **GUARDED, **more})
    # A slave opens nothing.
    load_broker_config({**FAR, **GUARDED, **EXPLICIT, "brokerRole": "SLAVE", "brokerId": "1"})


@pytest.mark.parametrize(("more", "opens", "level"), [({}, True, 30), (GUARDED, False, 30), (SECRET, True, 0)])
def test_who_was_made_a_master_by_a_command_expects_slaves(more: dict[str, str], *, opens: bool, level: int) -> None:
    door = load_broker_config({**FAR, **more})[0].ha_door(expected=True)
    assert door.opens is opens
    assert [number for number, _ in door.words()] == ([level] if level else [])


def test_a_member_of_a_group_has_no_such_port(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    keys = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-10.0.0.1:40911", "dLegerSelfId": "n0"}
    load_broker_config({**FAR, **GUARDED, **EXPLICIT, **keys, "raftSecretFile": str(secret)})
