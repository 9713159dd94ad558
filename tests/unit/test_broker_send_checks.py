"""What a message's properties ask for, and that nothing which is wrong with them is more than a refusal."""

from typing import Any, cast

import pytest

from broker.messages.send_checks import PREPARED, MessageChecks
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import ManualClock
from store.config import StoreConfig


def checks() -> MessageChecks:
    live = LiveConfig(BrokerConfig(), StoreConfig())
    return MessageChecks(live, cast(Any, None), lambda _group, _by: None, ManualClock(), lambda below: below - 1)


def test_what_the_broker_writes_itself_is_left_out() -> None:
    found = checks().properties("A\x01b\x02DELAY\x013\x02CLUSTER\x01c\x02WAIT\x01false")
    assert found == ("A\x01b\x02WAIT\x01false\x02", False, 3)


@pytest.mark.parametrize("text", ["A\x01b\x01c\x02DELAY\x013", "DELAY\x01" + "9" * 5000, "DELAY\x01x"])
def test_properties_that_cannot_be_are_refused(text: str) -> None:
    """A value that holds a separator was a ValueError: code 1, and a stack trace in the log for each."""
    with pytest.raises(CommandError) as refused:
        checks().properties(text)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_prepared_message_names_its_group_and_has_no_timer() -> None:
    asked = checks()
    assert asked.properties("TRAN_MSG\x01True\x02DELAY\x013", group="P") == (
        "TRAN_MSG\x01True\x02PGROUP\x01P\x02DELAY\x013\x02",
        True,
        PREPARED,
    )
    assert asked.properties("TRAN_MSG\x01true\x02PGROUP\x01Q", group="P").text == "TRAN_MSG\x01true\x02PGROUP\x01Q\x02"
    for text, group in (("", ""), ("TIMER_DELAY_MS\x015\x02", "P"), ("TIMER_DELIVER_MS\x01x\x02", "P")):
        with pytest.raises(CommandError):
            asked.properties(f"TRAN_MSG\x01true\x02{text}", group=group)
