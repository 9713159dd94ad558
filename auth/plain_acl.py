"""ACL 1.0's accounts, and the users and policies of ACL 2.0 that let them do what they could: a pure mapping.

What ACL 1.0 decides by (RocketMQ 4.4 to 5.2): a permission is DENY, PUB, SUB or PUB|SUB, and every other word is DENY.
What `topicPerms` says of a topic counts for that topic alone and entirely; the default is for all others, and without
one they are denied. A group is the same with its own two keys. An administrator about whom no topic and no group says
anything may do everything. Names are no patterns.

Two things differ from what RocketMQ 5 makes of the same file, which gives more than ACL 1.0 gave: a word that ACL 1.0
does not know, ANY among them, stays denied instead of allowing everything; and where a topic has less than the default,
that it has no more is said too, for a default policy is looked at wherever no custom one fits. What cannot be carried
over is told in words, by account.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from auth.model import (
    Action,
    Decision,
    Pattern,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceKind,
    User,
    UserType,
    entry,
    group,
    resource_of,
    topic,
)
from auth.wire import ENTRIES_MAX
from remoting.topics import RETRY_PREFIX
from runtime.config import ConfigError

_PERMISSIONS = {
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
    "DENY": frozenset[Action](),
}
# Addresses in one note.
ADDRESSES_MAX = 20
_EVERYWHERE = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


@dataclass(frozen=True, slots=True)
class NamedPermission:
    """What an account may do with one topic or group: "orders=PUB|SUB"."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """An account of plain_acl.yml, its words as they stand there; the secret key is in no repr."""

    where: str
    """The file, the account and its line, as errors and notes say it."""
    access_key: str
    secret_key: str = field(repr=False)
    white_address: str = ""
    admin: bool = False
    default_topic: str = ""
    default_group: str = ""
    topics: tuple[NamedPermission, ...] = ()
    groups: tuple[NamedPermission, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """What one file holds: its accounts, and the addresses from which nobody is asked who he is."""

    path: str
    accounts: tuple[PlainAccount, ...] = ()
    white_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MigratedUser:
    """The user that an account becomes, and what he may do."""

    user: User
    policies: Policies


@dataclass(frozen=True, slots=True)
class Migration:
    """What becomes of some files: users in the order of the files, and what cannot be carried over, in words."""

    users: tuple[MigratedUser, ...] = ()
    notes: tuple[str, ...] = ()


def migration_of(files: Iterable[PlainAcl]) -> Migration:
    """Return the users and policies that accounts become; of two accounts of one name the first counts.

    Raises ConfigError for an account that would be more policies than a user can have.
    """
    notes: list[str] = []
    made: dict[str, MigratedUser] = {}
    for each in files:
        if each.white_addresses:
            shown, more = each.white_addresses[:ADDRESSES_MAX], len(each.white_addresses) - ADDRESSES_MAX
            listed = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
            notes.append(
                f"{each.path}: globalWhiteRemoteAddresses ({listed}): no address lets anybody in any more: who comes "
                "from there needs a user, and signs"
            )
        for account in each.accounts:
            if account.access_key in made:
                notes.append(f"{account.where}: there is an account {account.access_key} before it, which counts")
                continue
            made[account.access_key] = _migrated(account, notes)
    return Migration(tuple(made.values()), tuple(notes))


def _migrated(account: PlainAccount, notes: list[str]) -> MigratedUser:
    """Return what becomes of an account; what is lost is added to `notes`."""
    if account.white_address:
        addresses = "everywhere" if account.white_address in _EVERYWHERE else account.white_address
        notes.append(
            f"{account.where}: whiteRemoteAddress: from {addresses} {account.access_key} could do everything, and "
            "unsigned: now he signs, and may do what his policies say"
        )
    if account.admin and (account.topics or account.groups):
        notes.append(
            f"{account.where}: topicPerms and groupPerms of the administrator {account.access_key} bound him: a super "
            "user is bound by nothing (raftmq user update --normal)"
        )
    named = _named(account, notes)
    custom = tuple(_entry(resource, allowed) for resource, allowed in named.items())
    policies: Policies = {}
    if custom:
        policies[PolicyType.CUSTOM] = custom
    defaults: list[PolicyEntry] = []
    for kind, key, words in (
        (ResourceKind.TOPIC, "defaultTopicPerm", account.default_topic),
        (ResourceKind.GROUP, "defaultGroupPerm", account.default_group),
    ):
        if not words:
            # As in ACL 1.0: denied, which needs no policy.
            continue
        allowed = _allowed(f"{account.where}: {key}", words, notes)
        defaults += _withheld(named, kind, allowed)
        defaults.append(_entry(Resource(kind, "", Pattern.ANY), allowed))
    if defaults:
        policies[PolicyType.DEFAULT] = tuple(defaults)
    if (count := len(custom) + len(defaults)) > ENTRIES_MAX:
        raise ConfigError(f"{account.where}: it takes {count} policies, a user has at most {ENTRIES_MAX}")
    kind_of_user = UserType.SUPER if account.admin else UserType.NORMAL
    return MigratedUser(User(account.access_key, account.secret_key, kind_of_user), policies)


def _named(account: PlainAccount, notes: list[str]) -> dict[Resource, frozenset[Action]]:
    """Return what is said of topics and groups by their names; said twice, the later counts, topics after groups."""
    groups: dict[Resource, frozenset[Action]] = {}
    topics: dict[Resource, frozenset[Action]] = {}
    for each in account.groups:
        _name_one(groups, group(each.name), f"{account.where}: groupPerms {each.name}", each.words, notes)
    for each in account.topics:
        # A group's retry topic is how ACL 1.0 itself writes the group.
        resource = group(each.name) if each.name.startswith(RETRY_PREFIX) else topic(each.name)
        found = groups if resource.kind is ResourceKind.GROUP else topics
        _name_one(found, resource, f"{account.where}: topicPerms {each.name}", each.words, notes)
    return {**topics, **groups}


def _name_one(
    found: dict[Resource, frozenset[Action]], resource: Resource, where: str, words: str, notes: list[str]
) -> None:
    if resource_of(resource.key) != resource:
        notes.append(f"{where}: in ACL 1.0 a * is no pattern: it said nothing about any {resource.kind.lower()}")
        return
    found[resource] = _allowed(where, words, notes)


def _allowed(where: str, words: str, notes: list[str]) -> frozenset[Action]:
    allowed = _PERMISSIONS.get(words)
    if allowed is None:
        notes.append(f"{where}: {words}: ACL 1.0 denies by every word but PUB, SUB and PUB|SUB: it stays denied")
        return frozenset()
    return allowed


def _entry(resource: Resource, allowed: frozenset[Action]) -> PolicyEntry:
    if not allowed:
        return entry(resource, [Action.ALL], Decision.DENY)
    return entry(resource, sorted(allowed), Decision.ALLOW)


def _withheld(
    named: Mapping[Resource, frozenset[Action]], kind: ResourceKind, allowed: frozenset[Action]
) -> list[PolicyEntry]:
    """Return default policies that keep from a named topic what the default allows all others."""
    return [
        entry(resource, sorted(allowed - own), Decision.DENY)
        for resource, own in named.items()
        if resource.kind is kind and own and allowed - own
    ]
