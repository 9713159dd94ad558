"""A broker that is closed and started again in its process: why, and what is done with the closed folder between.

Some things can only be done to a store that nobody has open (a tail cut off, a log begun anew), and a broker cannot
change its mode while it serves. So whoever needs it names a `RestartAction`; the broker stops in good order, the action
is done, the configuration is read again, and a new broker takes the place of the old one (broker/main.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.settings.config import BrokerConfig
from store.config import StoreConfig

Act = Callable[[StoreConfig], None]
"""Called in a thread with the configuration of the store that was just closed. What it raises ends the process."""
Reload = Callable[[], tuple[BrokerConfig, StoreConfig]]
"""Reads the configuration again, in a thread. Raises ConfigError, OSError."""


@dataclass(frozen=True, slots=True)
class RestartAction:
    """What a broker is to become of itself."""

    why: str
    """Shown at /readyz and logged: "copies the master's log anew"."""
    act: Act | None = None
    """Done once the store is closed; not at all when a signal ends the process meanwhile: it must be found again."""
