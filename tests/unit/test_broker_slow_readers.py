"""disableConsumeIfConsumerReadSlowly: who is too far behind may not consume, until an administrator lets him again."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from broker import stats
from broker.messages.slow_readers import SlowReaders
from remoting.bodies.registry import SubscriptionGroupConfig
from tests.parts.pulling import Setting, pulling


@pytest.fixture
async def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    monkeypatch.setattr(stats, "BEHIND_NOTED", 100)
    async with pulling(tmp_path) as made:
        made.parts.config.update({"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "1000"})
        for number in range(4):
            made.parts.put("T", 0, b"%d" % number * 600)
        yield made


def readers(setting: Setting) -> SlowReaders:
    return SlowReaders(setting.parts.context(setting.role), setting.parts.tables)


def may_consume(setting: Setting, group: str = "G") -> bool:
    known = setting.parts.groups.get(group)
    assert known is not None
    return known.consumeEnable


async def test_who_is_too_far_behind_is_shut_out_until_an_administrator_lets_him(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    slow = readers(setting)
    setting.pull(0, maxMsgNums=1)
    assert setting.last.code == 0
    with caplog.at_level(logging.WARNING):
        await slow.check()
    assert not may_consume(setting)
    assert "group G may not consume any more" in caplog.text
    assert "in topic T, queue 0" in caplog.text
    setting.refused(16, "not permitted|disabled|no permission", offset=1, maxMsgNums=1)
    known = setting.parts.groups.get("G")
    assert known is not None
    setting.parts.groups.update(msgspec.structs.replace(known, consumeEnable=True))
    # What was measured before counts no more: he has not read since.
    await slow.check()
    assert may_consume(setting)
    setting.pull(0, maxMsgNums=1)
    await slow.check()
    assert not may_consume(setting)


async def test_who_has_caught_up_is_not_shut_out(setting: Setting) -> None:
    slow = readers(setting)
    setting.pull(0, maxMsgNums=1)
    setting.pull(3, maxMsgNums=1)
    await slow.check()
    assert may_consume(setting)


@pytest.mark.parametrize(
    ("key", "value"), [("disableConsumeIfConsumerReadSlowly", "false"), ("consumerFallbehindThreshold", "100000")]
)
async def test_it_is_off_by_default_and_has_a_threshold(setting: Setting, key: str, value: str) -> None:
    setting.parts.config.update({key: value})
    setting.pull(0, maxMsgNums=1)
    await readers(setting).check()
    assert may_consume(setting)


async def test_who_does_not_lead_shuts_nobody_out(setting: Setting) -> None:
    setting.pull(0, maxMsgNums=1)
    setting.role.leads = False
    await readers(setting).check()
    assert may_consume(setting)


async def test_tools_are_not_shut_out(setting: Setting) -> None:
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="TOOLS_CONSUMER"))
    setting.pull(0, maxMsgNums=1, consumerGroup="TOOLS_CONSUMER")
    await readers(setting).check()
    assert may_consume(setting, "TOOLS_CONSUMER")
