"""The keys of idempotent sends, all ours: whose are recognized when they come again, and for how long."""

from dataclasses import dataclass

from runtime.config import ConfigError

# A week: what is asked for longer than that wants a table of its own, not a log's tail.
WINDOW_SECONDS_MAX = 7 * 24 * 3600
# Some 40 bytes each: 4 GB.
KEYS_MAX = 100_000_000


# Without slots, as ClassicKeys.
@dataclass(frozen=True)
class IdempotentKeys:
    """The part of BrokerConfig about sends that are stored once, however often they are sent."""

    enableIdempotentProducer: bool = True  # of producers that ask for it, as ours do
    idempotentForAllProducers: bool = False  # of all others too, by the UNIQ_KEY that every client writes
    # How long a send is remembered. Longer than any client goes on trying: official ones send for 3 s three times.
    idempotentWindowSeconds: int = 60
    idempotentKeysMax: int = 1_000_000  # so many are remembered at most, of the window the newest; 40 bytes each


def check_idempotent(keys: IdempotentKeys) -> None:
    """Raise ConfigError when they cannot be used."""
    if not 1 <= keys.idempotentWindowSeconds <= WINDOW_SECONDS_MAX:
        raise ConfigError(
            f"idempotentWindowSeconds={keys.idempotentWindowSeconds}: it takes seconds, 1 to {WINDOW_SECONDS_MAX}"
        )
    if not 1 <= keys.idempotentKeysMax <= KEYS_MAX:
        raise ConfigError(f"idempotentKeysMax={keys.idempotentKeysMax}: it takes a number, 1 to {KEYS_MAX}")
    if keys.idempotentForAllProducers and not keys.enableIdempotentProducer:
        raise ConfigError("idempotentForAllProducers=true needs enableIdempotentProducer=true")
