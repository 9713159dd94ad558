"""SQL92 filters against their dumb twin (sql_twin.py): which expressions are refused, and which messages delivered."""

from hypothesis import given
from hypothesis import strategies as st

from broker.filters.parser import CHAIN_MAX, DEPTH_MAX
from broker.filters.sql import SqlFilter
from broker.filters.tokens import SqlError
from remoting.properties import encode_properties
from tests.properties.sql_twin import Maker, delivered

# Of each example of `make fuzz` (10,000): so some 150,000 pairs of the two, for some expressions are refused.
EXPRESSIONS, MESSAGES = 4, 5


@given(st.integers(0, 2**64))
def test_fuzz_filters_say_what_their_twin_says(seed: int) -> None:
    maker = Maker(seed)
    for _ in range(EXPRESSIONS):
        text, meaning = maker.expression()
        try:
            made: SqlFilter | None = SqlFilter(text)
        except SqlError:
            made = None
        assert (made is None) == (meaning is None), text
        if made is None or meaning is None:
            continue
        for _ in range(MESSAGES):
            message = maker.message()
            assert made.matches(encode_properties(message)) == delivered(meaning, message), (text, message)


def test_the_makers_expressions_are_of_every_kind() -> None:
    """What the property rests on: enough is taken, refused, delivered and not, and no bound of ours is met."""
    counts = {"refused": 0, "delivered": 0, "kept back": 0}
    for seed in range(400):
        maker = Maker(seed)
        text, meaning = maker.expression()
        assert text.count("(") < DEPTH_MAX
        assert CHAIN_MAX >= 2
        message = maker.message()
        counts["refused" if meaning is None else "delivered" if delivered(meaning, message) else "kept back"] += 1
    assert min(counts.values()) >= 40, counts


@given(st.text(max_size=200) | st.text(alphabet="aN()'=<>-+*/ \n,0.eTINORLU1\\", max_size=200))
def test_fuzz_any_text_is_a_filter_or_an_error_with_words(text: str) -> None:
    try:
        SqlFilter(text).matches(b"a\x011\x02N\x01x\x02")
    except SqlError as error:
        said = str(error)
        assert len(said) < 300, said
