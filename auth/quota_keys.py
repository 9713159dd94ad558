"""The keys of quotas, all ours: how much one client address, and one user, may ask for.

0 is no quota, and the default. All of them may be changed while the process runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from runtime.config import ConfigError


class Quota(StrEnum):
    """What is bounded, as `quotaUsers` and the metrics call it."""

    REQUESTS = "requests"
    BYTES = "bytes"
    CONNECTIONS = "connections"
    TOPICS = "topics"
    GROUPS = "groups"


# The ending of each one's key.
KEY_ENDS: Mapping[Quota, str] = {
    Quota.REQUESTS: "RequestsPerSecond",
    Quota.BYTES: "BytesPerSecond",
    Quota.CONNECTIONS: "Connections",
    Quota.TOPICS: "TopicsPerHour",
    Quota.GROUPS: "GroupsPerHour",
}
ADDRESS_KEYS = "quotaAddress"
USER_KEYS = "quotaUser"
OTHERS_KEY = "quotaUsers"

Limits = Mapping[Quota, int]


# Without slots, as ClassicKeys.
@dataclass(frozen=True)
class AddressQuotaKeys:
    """The quotas of one client address (of IPv6: of its network of 64 bits) at a NameServer, and at a broker."""

    quotaAddressRequestsPerSecond: int = 0  # sends, and as many reads
    quotaAddressBytesPerSecond: int = 0  # of sends, and as many of what reads are answered with
    quotaAddressConnections: int = 0  # that ask for something, at a time


@dataclass(frozen=True)
class QuotaKeys(AddressQuotaKeys):
    """The quotas of an address and of a user at a broker. Those of users take authenticationEnabled."""

    quotaAddressTopicsPerHour: int = 0  # made by using them
    quotaAddressGroupsPerHour: int = 0
    quotaUserRequestsPerSecond: int = 0
    quotaUserBytesPerSecond: int = 0
    quotaUserConnections: int = 0
    quotaUserTopicsPerHour: int = 0  # made by using them, or by request
    quotaUserGroupsPerHour: int = 0
    quotaUsers: str = ""  # for whom they are others: "alice requests=5000 bytes=0; bob connections=2"


QUOTA_KEYS = frozenset(field.name for field in fields(QuotaKeys))


def check_quotas(keys: AddressQuotaKeys, *, authenticated: bool) -> None:
    """Raise ConfigError for quotas that cannot be used; `authenticated`: users prove who they are."""
    for field in fields(keys):
        if field.name in QUOTA_KEYS and field.name != OTHERS_KEY and getattr(keys, field.name) < 0:
            raise ConfigError(f"{field.name}={getattr(keys, field.name)}: it takes 0 (no quota), or a number above")
    if not isinstance(keys, QuotaKeys):
        return
    others_of(keys)
    wanted = [key for key in sorted(QUOTA_KEYS) if key.startswith(USER_KEYS) and getattr(keys, key)]
    if wanted and not authenticated:
        raise ConfigError(
            f"{', '.join(wanted)}: quotas of users take authenticationEnabled=true: without it a request may say any "
            "name"
        )


def limits_of(keys: AddressQuotaKeys, prefix: str) -> dict[Quota, int]:
    """Return what the keys with that prefix say, where they are there."""
    return {quota: getattr(keys, prefix + end, 0) for quota, end in KEY_ENDS.items()}


def others_of(keys: QuotaKeys) -> dict[str, dict[Quota, int]]:
    """Return the quotas of users who have others, those that differ, by name; raises ConfigError."""
    found: dict[str, dict[Quota, int]] = {}
    for part in filter(None, (each.strip() for each in keys.quotaUsers.split(";"))):
        name, *words = part.split()
        limits = dict(map(_limit, words))
        if not words or name in found:
            raise ConfigError(f"{OTHERS_KEY}: {part[:100]}: {_TAKES}")
        found[name] = limits
    return found


# Of a number: more than any disk writes in a second.
_DIGITS_MAX = 15
_TAKES = (
    "it takes users, each once, with ';' between them, and their quotas: alice requests=5000 bytes=0; bob "
    f"connections=2 ({', '.join(Quota)}; 0: no quota)"
)


def _limit(word: str) -> tuple[Quota, int]:
    quota, _, number = word.partition("=")
    if quota not in list(Quota) or not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        raise ConfigError(f"{OTHERS_KEY}: {word[:100]}: {_TAKES}")
    return Quota(quota), int(number)
