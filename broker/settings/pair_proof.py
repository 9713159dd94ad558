"""How brokers of one name prove what they tell of themselves (9111) by the secret of haSecretFile. Without I/O.

Two things are worth a lie. A slave says at its master who it is: known slaves may keep their master from taking
messages (broker/master_slave/introductions.py). And a broker says that it was promoted, which deposes the one before it
(broker/master_slave/fencing.py). So a slave proves its name for the master's present incarnation, and whoever is asked
for its state with a nonce proves what it claims together with that nonce: HMAC-SHA256, with labels that are not those
of the HA port (broker/master_slave/ha_secret.py). Without a secret nobody proves anything, and all are believed.

Either side may know two secrets while they are changed: each proves by its first, and takes a proof by any of its own.
"""

import hmac
import secrets as randomness
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from remoting.fastjson import read_strictly

SLAVE_LABEL, STATE_LABEL = b"RaftMQ slave's name", b"RaftMQ broker's state"
NONCE_BYTES = 16
# Characters of a nonce, and bytes of a question's body.
NONCE_LENGTH_MAX = 64
QUESTION_BYTES_MAX = 1024
# Where a slave proves its name in a request whose body is about something else.
SLAVE_FIELD = "slave"
# What of a broker's state is proved: all that is believed of a promoted one.
CLAIMED = ("broker", "role", "epoch", "promoting", "fenced")


class Question(msgspec.Struct, frozen=True):
    """The body of a question about a broker's state; whoever is no slave gives no address."""

    brokerId: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    address: str = ""
    proof: str = ""
    """Of the slave's name."""
    nonce: str = ""
    """What the answer is to be proved with, "" for an answer without a proof."""


def read_question(body: bytes | memoryview) -> Question | None:
    """Return what a question says, None when it says nothing that can be read."""
    if not 0 < len(body) <= QUESTION_BYTES_MAX:
        return None
    try:
        return read_strictly(body, Question)
    except msgspec.DecodeError:
        return None


class PairProof:
    """What this broker proves to those of its name, and whom of them it believes."""

    def __init__(self, known: tuple[bytes, ...] = ()) -> None:
        self._known = known

    def take(self, known: tuple[bytes, ...]) -> None:
        """Use these secrets from now on."""
        self._known = known

    @property
    def needed(self) -> bool:
        """Whether there is a secret: then nobody is believed without a proof."""
        return bool(self._known)

    def question(self) -> tuple[bytes, str]:
        """Return the body of a question about somebody's state, and the nonce that its answer is to be proved with."""
        nonce = randomness.token_hex(NONCE_BYTES) if self._known else ""
        return (msgspec.json.encode({"nonce": nonce}) if nonce else b""), nonce

    def answer(self, state: dict[str, Any], body: bytes | memoryview) -> dict[str, Any]:
        """Return the own state as it answers a question: with a proof where one is asked for and can be given."""
        asked = read_question(body) if self._known else None
        if asked is None or not 0 < len(asked.nonce) <= NONCE_LENGTH_MAX:
            return state
        return {**state, "proof": _mac(self._known[0], STATE_LABEL, _claim(asked.nonce, state))}

    def proves(self, nonce: str, state: Mapping[str, Any]) -> bool:
        """Tell whether a state is proved by one who knows the secret; without a secret every one is believed."""
        return self._told_by(state.get("proof"), STATE_LABEL, _claim(nonce, state))

    def introduce(self, incarnation: str, broker_id: int, address: str) -> str:
        """Return the proof of this slave's name to a master of an incarnation, "" without a secret."""
        if not self._known:
            return ""
        return _mac(self._known[0], SLAVE_LABEL, [incarnation, broker_id, address])

    def introduces(self, incarnation: str, told: Question) -> bool:
        """Tell whether a slave's name is proved to this master; without a secret every one is believed."""
        return self._told_by(told.proof, SLAVE_LABEL, [incarnation, told.brokerId, told.address])

    def _told_by(self, proof: object, label: bytes, what: list[Any]) -> bool:
        if not self._known:
            return True
        if not isinstance(proof, str) or not proof.isascii():
            return False
        return any(hmac.compare_digest(proof, _mac(secret, label, what)) for secret in self._known)


def _claim(nonce: str, state: Mapping[str, Any]) -> list[Any]:
    return [nonce, *(state.get(name) for name in CLAIMED)]


def _mac(secret: bytes, label: bytes, what: list[Any]) -> str:
    return hmac.digest(secret, label + msgspec.json.encode(what), "sha256").hex()
