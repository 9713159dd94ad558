"""Bugs of idempotent sends."""

from collections.abc import Sequence
from typing import Any

from broker.messages.idempotent import IdempotentSends
from store.types import Dispatched
from tests.chaos.planted.grafts import graft


def forget_others_sends() -> None:
    """Remember what was sent to this member while it led, and nothing of what the others' logs brought."""

    def make(honest: Any) -> Any:
        def dispatched(self: IdempotentSends, batch: Sequence[Dispatched]) -> None:
            honest(self, [entry for entry in batch if (entry.topic, entry.uniq_key) in self._flying])

        return dispatched

    graft(IdempotentSends, "dispatched", make)
