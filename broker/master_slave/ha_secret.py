"""How a slave and a master prove to one another at the HA port that they know one secret (haSecretFile). Without I/O.

Three messages of fixed length come before the first report, which is what RocketMQ's HA protocol begins with:

1. slave → master: MAGIC (8 bytes) and a nonce (32 bytes)
2. master → slave: a nonce and the HMAC-SHA256 of MASTER_LABEL and both nonces (64 bytes)
3. slave → master: the HMAC of SLAVE_LABEL and both nonces (32 bytes)

As a report MAGIC would be a negative position, which any master refuses. Labels keep one side's proof from being shown
as the other's, nonces an old one from being shown again. What follows is neither encrypted nor authenticated by this.
Either side may know two secrets while they are changed: the master proves the first of its own, the slave looks which
of its own that is, and answers with it.
"""

import hmac
import secrets

MAGIC = b"\xffRMQ-HA\x01"
NONCE_BYTES = 32
MAC_BYTES = 32
MASTER_LABEL, SLAVE_LABEL = b"RaftMQ HA master", b"RaftMQ HA slave"


class ProofRefused(Exception):
    """The other side does not prove that it knows the secret; the text says what it did instead."""


def _mac(secret: bytes, label: bytes, slave_nonce: bytes, master_nonce: bytes) -> bytes:
    return hmac.digest(secret, label + slave_nonce + master_nonce, "sha256")


class MasterProof:
    """The master's side of one connection."""

    def __init__(self, known: tuple[bytes, ...], nonce: bytes) -> None:
        assert known, "there is something to prove"
        assert len(nonce) == NONCE_BYTES, "as long as the hash"
        self._secret = known[0]
        self._nonce = nonce
        self._kept = b""
        self._slave_nonce = b""
        self.done = False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what to send, and what came behind the proof, which is whole when `done`. Raises ProofRefused."""
        self._kept += data
        if not MAGIC.startswith(self._kept[: len(MAGIC)]):
            raise ProofRefused("does not prove that it knows the secret of haSecretFile, as RocketMQ's slaves cannot")
        hello = len(MAGIC) + NONCE_BYTES
        if len(self._kept) < hello:
            return b"", b""
        answer = b""
        if not self._slave_nonce:
            self._slave_nonce = self._kept[len(MAGIC) : hello]
            answer = self._nonce + _mac(self._secret, MASTER_LABEL, self._slave_nonce, self._nonce)
        proof, rest = self._kept[hello : hello + MAC_BYTES], self._kept[hello + MAC_BYTES :]
        if len(proof) < MAC_BYTES:
            return answer, b""
        if not hmac.compare_digest(proof, _mac(self._secret, SLAVE_LABEL, self._slave_nonce, self._nonce)):
            raise ProofRefused("does not know the secret of haSecretFile")
        self.done = True
        return answer, rest


class SlaveProof:
    """The slave's side of one connection."""

    def __init__(self, known: tuple[bytes, ...], nonce: bytes) -> None:
        assert known, "there is something to prove"
        assert len(nonce) == NONCE_BYTES, "as long as the hash"
        self._secrets = known
        self._nonce = nonce
        self._kept = b""
        self.done = False

    def open(self) -> bytes:
        """Return what is sent first."""
        return MAGIC + self._nonce

    def take(self, data: bytes) -> bytes:
        """Return what is to be sent; the proof is whole when `done`. Raises ProofRefused."""
        self._kept += data
        if len(self._kept) < NONCE_BYTES + MAC_BYTES:
            return b""
        if len(self._kept) > NONCE_BYTES + MAC_BYTES:
            raise ProofRefused("it sent more than a proof of the secret of haSecretFile")
        nonce, proof = self._kept[:NONCE_BYTES], self._kept[NONCE_BYTES:]
        for secret in self._secrets:
            if hmac.compare_digest(proof, _mac(secret, MASTER_LABEL, self._nonce, nonce)):
                self.done = True
                return _mac(secret, SLAVE_LABEL, self._nonce, nonce)
        raise ProofRefused("the master does not know the secret of haSecretFile")


def master_proof(known: tuple[bytes, ...]) -> MasterProof | None:
    """Return what a new connection must do before it is a slave's, None when there is no secret."""
    return MasterProof(known, secrets.token_bytes(NONCE_BYTES)) if known else None


def slave_proof(known: tuple[bytes, ...]) -> SlaveProof | None:
    """Return what a slave does on a new connection before it reports, None when it has no secret."""
    return SlaveProof(known, secrets.token_bytes(NONCE_BYTES)) if known else None
