"""pair_proof.py: what brokers of one name tell of themselves is proved by the secret of haSecretFile."""

from typing import Any

import msgspec
import orjson
import pytest

from broker.settings.pair_proof import QUESTION_BYTES_MAX, PairProof, Question, read_question

OLD, NEW, WRONG = b"the old secret, 16+", b"the new secret, 16+", b"a wrong secret, 16+"
STATE: dict[str, Any] = {"broker": "b", "role": "ASYNC_MASTER", "epoch": 3, "promoting": None, "fenced": None, "max": 5}


def asked(asker: PairProof, told: PairProof, **changed: object) -> bool:
    """Whether an answer is believed, some of which was changed on its way."""
    body, nonce = asker.question()
    answer = orjson.loads(orjson.dumps(told.answer(STATE, body)))
    return asker.proves(nonce, {**answer, **changed})


@pytest.mark.parametrize(
    ("asker", "told", "believed"),
    [
        ((), (), True),
        ((), (NEW,), True),
        ((NEW,), (NEW,), True),
        ((OLD, NEW), (NEW, OLD), True),
        ((NEW, OLD), (OLD,), True),
        ((NEW,), (), False),
        ((NEW,), (WRONG,), False),
    ],
)
def test_a_state_is_believed_of_one_who_knows_the_secret(
    asker: tuple[bytes, ...], told: tuple[bytes, ...], believed: bool
) -> None:
    assert asked(PairProof(asker), PairProof(told)) is believed


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": 4},
        {"broker": "another"},
        {"role": "SLAVE"},
        {"promoting": 9},
        {"fenced": "by another"},
        {"proof": None},
        {"proof": ""},
        {"proof": "é"},
        {"proof": 5},
    ],
)
def test_what_is_claimed_cannot_be_changed(changed: dict[str, Any]) -> None:
    pair = PairProof((NEW,))
    assert asked(pair, pair, max=6)
    assert not asked(pair, pair, **changed)


def test_an_answer_serves_for_its_own_question_only() -> None:
    pair = PairProof((NEW,))
    (body, nonce), (_, another) = pair.question(), pair.question()
    answer = pair.answer(STATE, body)
    assert pair.proves(nonce, answer)
    assert not pair.proves(another, answer)
    # A slave's name is not a state, however it is put.
    proof = pair.introduce(nonce, 3, "h:1")
    assert not pair.proves(nonce, {**STATE, "proof": proof})


def test_a_slave_proves_its_name_to_one_incarnation() -> None:
    slave, master = PairProof((OLD,)), PairProof((NEW, OLD))
    told = Question(1, "h:1", slave.introduce("cafe", 1, "h:1"))
    assert master.introduces("cafe", told)
    assert not master.introduces("beef", told)
    assert not master.introduces("cafe", Question(2, "h:1", told.proof))
    assert not master.introduces("cafe", Question(1, "h:2", told.proof))
    assert not master.introduces("cafe", Question(1, "h:1"))
    assert not PairProof((NEW,)).introduces("cafe", told)
    assert PairProof().introduces("cafe", Question(1, "h:1", PairProof().introduce("cafe", 1, "h:1")))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"nonce":5}',
        b'{"brokerId":1180591620717411303424}',
        b" " * QUESTION_BYTES_MAX + b"{}",
    ],
)
def test_nonsense_is_no_question_and_gets_no_proof(body: bytes) -> None:
    assert read_question(body) is None
    assert PairProof((NEW,)).answer(STATE, body) == STATE


@pytest.mark.parametrize("nonce", ["", "x" * 65])
def test_a_nonce_is_short(nonce: str) -> None:
    assert PairProof((NEW,)).answer(STATE, msgspec.json.encode({"nonce": nonce})) == STATE
