"""The handshake: both sides prove the secret, and every way in which they do not fit is said in one line."""

from typing import Any

import cbor2
import pytest

from raft.network.handshake import NONCE_BYTES, Acceptor, Dialler, HandshakeRefused, Identity, Purpose, Step

SECRET = b"between us"


def identity(name: str, secret: bytes = SECRET, group: str = "RaftNode00") -> Identity:
    return Identity(group, name, (secret,) if secret else (), f"hello of {name}".encode)


def knowing(name: str, *secrets: bytes) -> Identity:
    return identity(name)._replace(secrets=secrets)


def welcome(peer: str, hello: bytes) -> str | None:
    return None


class Pair:
    """A dialler and an acceptor with the frames between them."""

    def __init__(
        self,
        dialler: Identity | None = None,
        acceptor: Identity | None = None,
        *,
        peer: str = "n1",
        purpose: Purpose = "messages",
        nonces: bytes = b"da",
    ) -> None:
        self.judged: list[tuple[str, bytes]] = []
        self.why: str | None = None
        self.dialler = Dialler(dialler or identity("n0"), peer, purpose, nonces[:1] * NONCE_BYTES)
        self.acceptor = Acceptor(acceptor or identity("n1"), nonces[1:] * NONCE_BYTES, self._judge)

    def _judge(self, peer: str, hello: bytes) -> str | None:
        self.judged.append((peer, hello))
        return self.why

    def run(self) -> list[Step]:
        steps = [self.acceptor.take(self.dialler.open())]
        steps.append(self.dialler.take(steps[-1].reply))
        steps.append(self.acceptor.take(steps[-1].reply))
        steps.append(self.dialler.take(steps[-1].reply))
        return steps


@pytest.mark.parametrize("secret", [SECRET, b""])
@pytest.mark.parametrize("purpose", ["messages", "copy"])
def test_two_members_with_one_secret_agree(secret: bytes, purpose: Purpose) -> None:
    pair = Pair(identity("n0", secret), identity("n1", secret), purpose=purpose)
    assert [step.done for step in pair.run()] == [False, False, True, True]
    assert (pair.acceptor.peer, pair.acceptor.hello, pair.acceptor.purpose) == ("n0", b"hello of n0", purpose)
    assert (pair.dialler.peer, pair.dialler.hello) == ("n1", b"hello of n1")
    assert pair.judged == [("n0", b"hello of n0")]


@pytest.mark.parametrize(("one", "other"), [(b"a", b"b"), (b"", b"b"), (b"a", b"")])
def test_another_secret_is_refused_by_the_dialler_before_it_proves_anything(one: bytes, other: bytes) -> None:
    pair = Pair(identity("n0", one), identity("n1", other))
    with pytest.raises(HandshakeRefused, match="same secret") as caught:
        pair.run()
    assert pair.judged == []
    # And the other side learns why.
    with pytest.raises(HandshakeRefused, match=r"it refuses: .*same secret") as told:
        pair.acceptor.take(caught.value.farewell)
    assert told.value.farewell == b""


OLD, NEW = b"the old secret", b"the new secret"
# A rotation: each restarts with the next of these, one after the other.
ROTATION = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]


@pytest.mark.parametrize(("step", "other"), [(step, other) for step in range(4) for other in range(4)])
def test_a_secret_is_changed_step_by_step_while_neighbours_are_linked(step: int, other: int) -> None:
    pair = Pair(knowing("n0", *ROTATION[step]), knowing("n1", *ROTATION[other]))
    if abs(step - other) <= 1:
        assert pair.run()[-1].done
        assert pair.acceptor.hello == b"hello of n0"
    elif ROTATION[other][0] not in ROTATION[step]:
        with pytest.raises(HandshakeRefused, match="same secret"):
            pair.run()


def test_a_dialler_goes_on_with_the_secret_that_the_acceptor_proved() -> None:
    pair = Pair(knowing("n0", OLD, NEW), knowing("n1", NEW))
    step = pair.dialler.take(pair.acceptor.take(pair.dialler.open()).reply)
    # Shown to somebody who knows the old one only, it is no proof.
    old = Pair(knowing("n0", OLD), knowing("n1", OLD))
    old.acceptor.take(old.dialler.open())
    with pytest.raises(HandshakeRefused, match="same secret"):
        old.acceptor.take(step.reply)
    assert pair.acceptor.take(step.reply).done


def test_a_dialler_without_the_secret_is_refused_whatever_it_claims() -> None:
    pair = Pair()
    step = pair.acceptor.take(pair.dialler.open())
    proof = cbor2.loads(step.reply)
    # It shows the acceptor its own proof.
    with pytest.raises(HandshakeRefused, match="same secret"):
        pair.acceptor.take(cbor2.dumps({"t": 3, "hello": b"", "mac": proof["mac"]}))
    assert pair.judged == []


def test_proofs_of_another_time_are_worth_nothing() -> None:
    old = Pair()
    step = old.dialler.take(old.acceptor.take(old.dialler.open()).reply)
    new = Pair(nonces=b"dz")
    new.acceptor.take(new.dialler.open())
    with pytest.raises(HandshakeRefused, match="same secret"):
        new.acceptor.take(step.reply)


@pytest.mark.parametrize("field", ["from", "to", "group", "purpose", "nonce"])
def test_what_was_said_first_cannot_be_changed_on_the_way(field: str) -> None:
    pair = Pair()
    first = cbor2.loads(pair.dialler.open())
    other: dict[str, Any] = {"from": "n2", "purpose": "copy", "nonce": bytes(NONCE_BYTES), "to": "n2", "group": "x"}
    with pytest.raises(HandshakeRefused):
        pair.dialler.take(pair.acceptor.take(cbor2.dumps(first | {field: other[field]})).reply)


def test_a_changed_hello_is_noticed_on_both_sides() -> None:
    pair = Pair()
    third = cbor2.loads(pair.dialler.take(pair.acceptor.take(pair.dialler.open()).reply).reply)
    with pytest.raises(HandshakeRefused, match="same secret"):
        pair.acceptor.take(cbor2.dumps(third | {"hello": b"other"}))
    pair = Pair()
    step = pair.dialler.take(pair.acceptor.take(pair.dialler.open()).reply)
    fourth = cbor2.loads(pair.acceptor.take(step.reply).reply)
    with pytest.raises(HandshakeRefused, match="same secret"):
        pair.dialler.take(cbor2.dumps(fourth | {"hello": b"other"}))


def test_another_member_than_meant_says_who_it_is() -> None:
    with pytest.raises(HandshakeRefused, match="this is the member n2, not n1"):
        Pair(acceptor=identity("n2")).run()


def test_another_group_says_which_it_is() -> None:
    with pytest.raises(HandshakeRefused, match="this is the group Other, not RaftNode00"):
        Pair(acceptor=identity("n1", group="Other")).run()


def test_another_version_is_named() -> None:
    pair = Pair()
    first = cbor2.loads(pair.dialler.open())
    with pytest.raises(HandshakeRefused, match="version 1 is spoken here, not 2"):
        pair.acceptor.take(cbor2.dumps(first | {"v": 2}))


def test_who_is_proved_may_still_be_refused_and_learns_why() -> None:
    pair = Pair()
    pair.why = "n0 comes with another disk"
    with pytest.raises(HandshakeRefused, match="another disk") as caught:
        pair.run()
    with pytest.raises(HandshakeRefused, match="it refuses: n0 comes with another disk"):
        pair.dialler.take(caught.value.farewell)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff",
        b"GET / HTTP",
        cbor2.dumps([1, 2]),
        cbor2.dumps({}),
        cbor2.dumps({"t": 3}),
        cbor2.dumps({"t": 1}),
        cbor2.dumps({"t": 1, "v": 1, "group": 5, "from": "n0", "to": "n1", "nonce": b""}),
        cbor2.dumps({"t": 1, "v": 1, "group": "RaftNode00", "from": "n0", "to": "n1", "purpose": "messages"}),
        cbor2.dumps({"t": 1, "v": 1, "group": "RaftNode00", "from": "n0", "to": "n1", "purpose": "spying"}),
        cbor2.dumps({"t": 1, "v": 1, "group": "RaftNode00", "from": "x" * 256, "to": "n1"}),
        cbor2.dumps({"t": 1, "v": 1, "group": "RaftNode00", "from": "n0\n", "to": "n1"}),
        cbor2.dumps({"t": 1, "v": 1, "group": "RaftNode00", "from": "n0", "to": "n1", "nonce": b"", "purpose": "copy"}),
        cbor2.dumps({"t": 0, "why": 5}),
    ],
)
def test_garbage_is_refused(head: bytes) -> None:
    with pytest.raises(HandshakeRefused):
        Acceptor(identity("n1"), bytes(NONCE_BYTES), welcome).take(head)
    dialler = Dialler(identity("n0"), "n1", "messages", bytes(NONCE_BYTES))
    dialler.open()
    with pytest.raises(HandshakeRefused):
        dialler.take(head)
