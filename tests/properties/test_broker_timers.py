"""Timer messages against a dumb list: whatever is killed, torn, recalled, refused: once each, none early."""

import random
from collections import Counter
from pathlib import Path

import pytest

from broker.delay import index, read_ahead, timers
from broker.messages.timed_record import read_timed
from remoting.topics import TIMER_TOPIC
from store.types import PutStatus
from tests.parts.timer_parts import LIMITS, TimerSetting

STEPS = 60


class Twin:
    """What was sent and recalled."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.setting = TimerSetting(root, stepped=True, shared=bool(seed % 3 == 0))
        if seed % 4 == 0:
            # So that messages are stored anew all the time.
            self.setting.limits = LIMITS._replace(window_ms=5000)
        self.setting.service.start()
        self.slots: dict[str, int] = {}
        self.recalls: dict[str, list[list[bool]]] = {}

    def step(self) -> None:
        chance, setting = self.random.random(), self.setting
        if chance < 0.4:
            self.send()
        elif chance < 0.55 and self.slots:
            key = self.random.choice(list(self.slots))
            if self.slots[key] > setting.clock.now_ms():
                self.recalls.setdefault(key, []).append(setting.recall(key, self.slots[key]))
        elif chance < 0.8:
            setting.pass_time(self.random.choice((0.1, 1, 3, 8)), self.random.choice((1, 3, 10, 10_000)))
        elif chance < 0.85:
            setting.refusals += [self.random.choice((PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGE_CACHE_BUSY))]
        elif chance < 0.9:
            setting.store.step_flush()
        else:
            self.end()

    def send(self) -> None:
        for _ in range(self.random.choice((1, 1, 6))):
            key = f"K{len(self.slots)}"
            ms = self.random.choice((100, 900, 1000, 2500, 7000, 20_000, 61_000))
            if slot := self.setting.send(key, TIMER_DELAY_MS=ms):
                self.slots[key] = slot

    def end(self) -> None:
        """Stop, or be killed, or lose what was not on the disk."""
        setting = self.setting
        setting.refusals.clear()
        if self.random.random() < 0.3:
            setting.restart()
        else:
            behind = setting.store.written - setting.store.flushed
            # In a group nothing is torn: a member gets from others what it lost.
            cut = 0 if setting.shared else self.random.choice((0, 0, min(behind, self.random.randrange(1500))))
            setting.kill(cut=cut, index=self.random.random() < 0.7)
            if cut:
                self.forget()
        if self.random.random() < 0.8:
            setting.service.start()
            return
        setting.pass_time(3)
        setting.service.start()
        setting.service.stop()
        setting.service.start()

    def forget(self) -> None:
        """Take what the log lost for never sent, and its recalls for unknown."""
        kept: Counter[str] = Counter()
        recalled: Counter[str] = Counter()
        store = self.setting.store
        for entry in store.queue_entries(TIMER_TOPIC, 0, 0, 100_000):
            view = store.record_at(entry.physical_offset)
            assert view is not None
            found = read_timed(view)
            (recalled if found.deletes else kept)[found.key.decode()] += 1
        self.slots = {key: slot for key, slot in self.slots.items() if kept[key]}
        self.recalls = {
            key: [*verdicts, []] if recalled[key] < len(verdicts) else verdicts
            for key, verdicts in self.recalls.items()
            if key in self.slots
        }
        for key, verdicts in self.recalls.items():
            if recalled[key] < len(verdicts):
                self.recalls[key] = [[]]

    def check(self) -> None:
        setting = self.setting
        setting.service.start()
        setting.pass_time(300)
        seen = Counter(setting.keys())
        assert [key for key, count in seen.items() if count > 1] == [], "twice"
        for message in setting.delivered():
            assert int(message.properties["TIMER_DEQUEUE_MS"]) >= int(message.properties["TIMER_OUT_MS"]) + 1000
        # Without a trace is a recall whose entry was overwritten.
        surely = {key for key, verdicts in self.recalls.items() if any(verdict == [True] for verdict in verdicts)}
        perhaps = {key for key, verdicts in self.recalls.items() if [] in verdicts}
        assert surely & set(seen) == set(), "recalled, and delivered"
        assert set(self.slots) - set(seen) <= surely | perhaps, "lost"
        assert setting.service.index.count == 0


class GroupTwin(Twin):
    """The same in a group: entries are committed later than they are appended, or overwritten, and leaders change."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed * 3, root)
        self.setting.open_entries = []

    def step(self) -> None:
        setting = self.setting
        assert setting.open_entries is not None
        if self.random.random() < 0.4:
            setting.commit(self.random.randrange(len(setting.open_entries) + 1))
        super().step()

    def end(self) -> None:
        """Another member leads, and perhaps this one again; some of what it appended never was."""
        setting = self.setting
        assert setting.open_entries is not None
        setting.service.stop()
        open_entries = setting.open_entries
        if self.random.random() < 0.5:
            setting.overwrite(self.random.randrange(len(open_entries) + 1))
        if self.random.random() < 0.3:
            setting.commit(len(setting.open_entries))
            setting.kill(index=self.random.random() < 0.5)
        if self.random.random() < 0.5:
            setting.pass_time(self.random.choice((0, 1, 5)))
        setting.service.start()

    def check(self) -> None:
        setting = self.setting
        setting.refusals.clear()
        entries = setting.open_entries or []
        setting.open_entries = None
        for records, done in entries:
            setting.enter(records, done)
        self.slots = {key: slot for key, slot in self.slots.items() if key in set(setting.stored)}
        super().check()


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 8)
    monkeypatch.setattr(index, "MERGE_AT", 3)
    monkeypatch.setattr(index, "WORTH_A_RUN", 3)
    monkeypatch.setattr(timers, "BATCH_MAX", 3)
    monkeypatch.setattr(timers, "MADE_PER_TURN", 2)
    monkeypatch.setattr(timers, "SMALLER", 2)
    monkeypatch.setattr(timers, "LOOK_AHEAD", 5)
    monkeypatch.setattr(timers, "FEED_PER_TURN", 4)
    monkeypatch.setattr(read_ahead, "AHEAD", 7)


@pytest.mark.parametrize("seed", range(60))
def test_in_a_group_too_over_all_changes_of_the_lead(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    twin = GroupTwin(seed, tmp_path / "store")
    for _ in range(2 * STEPS):
        twin.step()
    twin.check()
    twin.setting.close()


@pytest.mark.parametrize("seed", range(60))
def test_each_once_none_early_none_lost(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    twin = Twin(seed, tmp_path / "store")
    for _ in range(STEPS):
        twin.step()
    twin.check()
    twin.setting.close()
