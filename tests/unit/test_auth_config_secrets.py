"""auth/config_secrets.py: no secret is an argument, and none stands in a file that others may read or change."""

from pathlib import Path

import pytest

from auth.config_secrets import KEY_FILES, SECRETS, check_arguments, check_config_file, check_key_files
from runtime.config import ConfigError

# What a file's owner has, and its group may read, is for them to say.
MODES = ((0o600, True), (0o400, True), (0o640, True), (0o644, False), (0o620, False), (0o602, False), (0o601, False))


def test_what_the_secrets_are() -> None:
    assert {
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "tls.server.keyPassword",
        "tls.client.keyPassword",
    } == SECRETS


@pytest.mark.parametrize("key", sorted(SECRETS))
def test_a_secret_is_no_argument(key: str) -> None:
    with pytest.raises(ConfigError, match=r"put the line into the configuration file") as refused:
        check_arguments({"brokerName": "b", key: "hunter22"})
    assert str(refused.value).startswith(f"--set {key}=…: ")
    assert "hunter22" not in str(refused.value)
    check_arguments({key: "", "raftSecretFile": "conf/raft.secret", "authenticationEnabled": "true"})


@pytest.mark.parametrize(("mode", "taken"), MODES)
@pytest.mark.parametrize("key", sorted(SECRETS))
def test_who_may_read_a_configuration_file_with_a_secret(tmp_path: Path, key: str, mode: int, taken: bool) -> None:
    path = tmp_path / "broker.conf"
    path.touch()
    path.chmod(mode)
    check_config_file(path, {"brokerName": "b", key: ""})
    if taken:
        check_config_file(path, {key: "hunter22"})
        return
    with pytest.raises(ConfigError, match=f"holds {key}, and other users .*: chmod 600 {path}$") as refused:
        check_config_file(path, {key: "hunter22"})
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(("mode", "taken"), MODES)
@pytest.mark.parametrize("key", KEY_FILES)
def test_who_may_read_a_certificates_key(tmp_path: Path, key: str, mode: int, taken: bool) -> None:
    path = tmp_path / "server.key"
    check_key_files({key: str(path), "brokerName": "b"})
    path.touch()
    path.chmod(mode)
    if taken:
        check_key_files({key: str(path)})
        return
    with pytest.raises(ConfigError, match=f"{key}={path}: other users .*: chmod 600 {path}$"):
        check_key_files({key: str(path)})
