"""client/credentials.py and remoting/signing.py: where credentials come from, and that they are shown nowhere."""

from pathlib import Path

import pytest

from client.credentials import credentials_for, read_credentials
from client.errors import ClientError
from remoting.codec import decode, encode
from remoting.command import ROCKETMQ, Command
from remoting.signing import SIGNATURE, Credentials, is_signed_by, sign

PAIR = {"RAFTMQ_ACCESS_KEY": "alice", "RAFTMQ_SECRET_KEY": "alice-secret-1"}
ALICE = Credentials("alice", "alice-secret-1")


def file_of(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "credentials"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_an_argument_counts_more_than_variables_and_those_more_than_a_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "# of bob\naccessKey = bob\nsecretKey=bob-secret-1\nsecurityToken=t\n")
    file = {"RAFTMQ_CREDENTIALS": str(path)}
    assert credentials_for(ALICE, {"RAFTMQ_ACCESS_KEY": "bob"}) == ALICE
    assert credentials_for(None, {**PAIR, **file}) == ALICE
    assert credentials_for(None, {**PAIR, "RAFTMQ_SECURITY_TOKEN": "t"}) == Credentials("alice", "alice-secret-1", "t")
    assert credentials_for(None, file) == Credentials("bob", "bob-secret-1", "t")
    assert credentials_for(None, {}) is None


@pytest.mark.parametrize("half", PAIR)
def test_half_a_pair_is_refused_by_name(half: str) -> None:
    missing = next(name for name in PAIR if name != half)
    with pytest.raises(ClientError, match=f"{missing} is not set"):
        credentials_for(None, {half: PAIR[half]})


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("accessKey=a\nsecretKey=hunter22\n", 0o640, "chmod 600"),
        ("accessKey=a\nsecretKey=hunter22\n", 0o604, "chmod 600"),
        ("secretKey=hunter22\n", 0o600, "it takes a line accessKey"),
        ("accessKey=a\nsecretKey=hunter22\x07\n", 0o600, "cannot be printed"),
        ("accessKey=a\nsecretKey=" + "hunter22" * 3000, 0o600, "more than 16384 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_its_secret(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    path = file_of(tmp_path, text, mode)
    with pytest.raises(ClientError, match=why) as refused:
        read_credentials(path)
    assert "hunter22" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="No such file"):
        credentials_for(None, {"RAFTMQ_CREDENTIALS": str(tmp_path / "none")})


@pytest.mark.parametrize("made", [("", "s"), ("a", ""), ("a\n", "s"), ("a", "s" * 1025)])
def test_what_are_no_credentials(made: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="key"):
        Credentials(*made)


@pytest.mark.parametrize("serialize_type", [0, ROCKETMQ])
def test_what_was_signed_is_what_comes_over_the_wire(serialize_type: int) -> None:
    request = Command.request(310, body=b"body", ext={"b": "tópic", "i": "KEYS\x01k\x02", "empty": "x"})
    request.serialize_type = serialize_type
    sign(request, ALICE)
    first = request.ext[SIGNATURE]
    # A second attempt of the same request is signed anew, and alike.
    sign(request, ALICE)
    assert request.ext[SIGNATURE] == first
    got = decode(encode(request)[4:])
    assert is_signed_by(got, ALICE.secret_key)
    assert not is_signed_by(got, "guess")
    got.body = b"Body"
    assert not is_signed_by(got, ALICE.secret_key)


def test_the_field_that_old_clients_add_afterwards_is_not_signed() -> None:
    request = Command.request(12, ext={"topic": "orders"})
    sign(request, ALICE)
    request.ext["_UNIQUE_KEY_QUERY"] = "true"
    request.version = 399
    assert is_signed_by(request, ALICE.secret_key)
    request.version = 400
    assert not is_signed_by(request, ALICE.secret_key)
