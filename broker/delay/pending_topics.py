"""How many timer messages wait, by topic: counted when somebody asks (61), in another thread, from flags of entries.

What waits may be ten million entries, so nothing is counted along the way; an answer is given again for a few seconds.
"""

from collections.abc import Sequence

from remoting.topics import TIMER_TOPIC
from store.timertopics import TOPICS_MAX, RunTail, count_by_number


class TimerTopicNumbers:
    """The numbers by which entries name their topics; they stay what they are as long as the index does.

    Number 0 is a topic's of which no number is known: of an entry of an older program, or one too many.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(names, 1)}

    @property
    def names(self) -> list[str]:
        """The topics, by number from 1 on."""
        return list(self._numbers)

    def number(self, topic: str) -> int:
        """Return a topic's number; 0 for one that comes when there are TOPICS_MAX."""
        found = self._numbers.get(topic)
        if found is None:
            if len(self._numbers) >= TOPICS_MAX:
                return 0
            found = self._numbers[topic] = len(self._numbers) + 1
        return found


class PendingTopics:
    """What waited at one moment, to be counted once."""

    def __init__(self, tails: Sequence[RunTail], flags: Sequence[int], names: Sequence[str]) -> None:
        """Take them; `flags` are those of the entries in memory."""
        self._tails = tails
        self._flags = flags
        self._names = names

    def count(self) -> dict[str, int]:
        """Return topic → messages that wait for it: a recall counts off what it recalls, as in RocketMQ.

        For any thread. Raises OSError.
        """
        names = [TIMER_TOPIC, *self._names]
        return {names[number]: count for number, count in count_by_number(self._tails, self._flags).items()}
