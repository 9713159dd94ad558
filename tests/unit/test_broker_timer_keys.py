"""timerMaxDelaySec and the other keys of timer messages: what they take, and what they make of it."""

from dataclasses import replace

import pytest

from broker.messages.timed_record import timer_limits
from broker.settings.config import load_broker_config
from runtime.config import ConfigError
from tests.parts.timer_parts import DAY_MS


@pytest.mark.parametrize(
    "setting",
    [
        "timerMaxDelaySec=3456001",
        "timerMaxDelaySec=0",
        "timerMaxDelaySec=soon",
        "timerPrecisionMs=9",
        "timerPrecisionMs=60001",
        "timerRollWindowSlot=0",
        "timerStopDequeue=true",
    ],
)
def test_what_cannot_be_is_refused_at_the_start_by_name(setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(ConfigError, match=key):
        load_broker_config({key: value})


def test_what_the_configuration_says_of_timers() -> None:
    store = load_broker_config({"timerMaxDelaySec": "3456000", "timerPrecisionMs": "500"})[1]
    assert timer_limits(store) == (True, 500, 40 * DAY_MS, DAY_MS)
    assert timer_limits(replace(store, timerPrecisionMs=1000)).window_ms == DAY_MS * 3 // 2, "half of what files stay"
    assert timer_limits(replace(store, fileReservedTime=720, timerPrecisionMs=1000)).window_ms == 2 * DAY_MS
    assert timer_limits(replace(store, fileReservedTime=0)).window_ms == 60_000
    off = load_broker_config({"timerWheelEnable": "false"})[1]
    assert not timer_limits(off).enabled
