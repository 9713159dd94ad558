"""How a slave proves that it knows the brokers' secret key before it is given everybody's (9123). Without I/O.

1. slave → master: a proof that is empty, which asks for a challenge
2. master → slave: a challenge, for this connection and one proof
3. slave → master: the HMAC-SHA256, by the brokers' secret key, of LABEL and the challenge

A signature alone proves too little: it does not cover the request's code and never ends, so whatever a broker signed
once, and somebody recorded, would do. It is an HMAC-SHA1, and no proof.
"""

import hmac
from collections.abc import Iterable

import msgspec

LABEL = "RaftMQ copy of users "


class UsersRequest(msgspec.Struct):
    """The body of 9123."""

    proof: str


class UsersChallenge(msgspec.Struct):
    """What 9123 answers to an empty proof."""

    challenge: str


def copy_proof(secret_key: str, challenge: str) -> str:
    """Return what whoever knows a secret key answers to a challenge."""
    return hmac.digest(secret_key.encode(), (LABEL + challenge).encode(), "sha256").hex()


def is_copy_proof(given: str, secret_keys: Iterable[str], challenge: str) -> bool:
    """Tell whether that is the proof of one of these secret keys."""
    return any(hmac.compare_digest(given.encode(), copy_proof(key, challenge).encode()) for key in secret_keys)
