"""The 40 % rule: who reads what memory no longer holds is sent to a slave, when slaves may be read."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoting.bodies.registry import SubscriptionGroupConfig
from tests.parts.pulling import Setting, pulling

RAM = 2500
"""Bytes of the machine: 40 % are 1000."""


@pytest.fixture
async def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    known = os.sysconf
    figures = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": RAM}
    monkeypatch.setattr(os, "sysconf", lambda name: figures[name] if name in figures else known(name))
    async with pulling(tmp_path) as made:
        made.parts.config.update({"slaveReadEnable": "true"})
        yield made


def backlog(setting: Setting, behind: int) -> None:
    """Store one message, and so many bytes behind it."""
    first = setting.parts.put("T", 0, b"first")
    size = setting.parts.put("T", 0, b"x" * 100).size
    setting.parts.put("T", 0, b"x" * (100 + behind - 2 * size))
    assert setting.parts.store.written - (first.physical_offset + first.size) == behind


def suggested(setting: Setting, *, kind: int = 0) -> int:
    setting.pull(0, maxMsgNums=1, kind=kind)
    assert setting.last.code == 0
    return int(setting.last.ext["suggestWhichBrokerId"])


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("behind", "expected"), [(999, 0), (1000, 0), (1001, 1)])
async def test_who_is_more_than_40_percent_of_the_memory_behind_is_sent_to_a_slave(
    setting: Setting, behind: int, expected: int, kind: int
) -> None:
    backlog(setting, behind)
    assert suggested(setting, kind=kind) == expected


async def test_the_group_says_to_which(setting: Setting) -> None:
    backlog(setting, 1001)
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", whichBrokerWhenConsumeSlowly=3, brokerId=0))
    assert suggested(setting) == 3


async def test_who_keeps_up_goes_where_the_group_wants_to_read(setting: Setting) -> None:
    backlog(setting, 1000)
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", brokerId=2))
    assert suggested(setting) == 2


async def test_nobody_is_sent_to_slaves_that_are_not_to_be_read(setting: Setting) -> None:
    setting.parts.config.update({"slaveReadEnable": "false"})
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", brokerId=2))
    backlog(setting, 1001)
    assert suggested(setting) == 0


async def test_at_the_end_nobody_is_slow(setting: Setting) -> None:
    backlog(setting, 5000)
    setting.pull(3)
    assert (setting.last.code, setting.last.ext["suggestWhichBrokerId"]) == (19, "0")


async def test_a_slow_reader_stays_with_the_follower_until_it_has_caught_up(setting: Setting) -> None:
    setting.role.leads = False
    backlog(setting, 1001)
    assert suggested(setting) == 1
    setting.pull(1, maxMsgNums=32)
    assert (setting.last.code, setting.last.ext["suggestWhichBrokerId"]) == (0, "0")
