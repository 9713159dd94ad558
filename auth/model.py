"""Users, resources, actions and policies: the nouns of access control, as immutable values."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from remoting import topics as names
from remoting.admission import IpAddress, Network

ANY_NAME = "*"
USER_PREFIX = "User:"
# Characters of a user's name.
NAME_LENGTH_MAX = 255

E = TypeVar("E", bound=StrEnum)


class UserType(StrEnum):
    """What a user is: a super user is asked for no permission."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Whether a user's requests are taken."""

    ENABLE = "enable"
    DISABLE = "disable"


class Action(StrEnum):
    """What is done with a resource. ALL stands in policies for every one; ANY, of a request, is matched by any."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(StrEnum):
    """What a resource is; ANY, in policies, is whatever there is."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(StrEnum):
    """How a policy's resource names what it is about."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"
    ANY = "ANY"


class Decision(StrEnum):
    """What a policy says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """A user's custom policies come first; where none of them fits, the default ones are looked at."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class User:
    """Who signs requests; the secret key is in no repr."""

    name: str
    secret: str = field(repr=False)
    kind: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE


class Resource(NamedTuple):
    """What is accessed, or what a policy is about: "Topic:orders", "Group:pay*", "Cluster:*", "*"."""

    kind: ResourceKind
    name: str = ""
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """The resource as RocketMQ writes it."""
        if self.kind is ResourceKind.ANY:
            return ANY_NAME
        star = "" if self.pattern is Pattern.LITERAL else ANY_NAME
        return f"{self.kind}:{self.name}{star}"

    def covers(self, asked: "Resource") -> bool:
        """Tell whether a policy about this is about what is asked for, a literal."""
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not asked.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == asked.name
        return asked.name.startswith(self.name)


def resource_of(text: str) -> Resource | None:
    """Return the resource that a text names, as RocketMQ reads it; None when it names none."""
    if not text.strip():
        return None
    if text == ANY_NAME:
        return Resource(ResourceKind.ANY, "", Pattern.ANY)
    kind = _member(ResourceKind, text.partition(":")[0])
    if kind is None:
        return None
    name = text.partition(":")[2]
    if name == ANY_NAME:
        return Resource(kind, "", Pattern.ANY)
    if name.endswith(ANY_NAME):
        return Resource(kind, name.partition(ANY_NAME)[0], Pattern.PREFIXED)
    return Resource(kind, name)


def topic(name: str) -> Resource:
    """Return a topic."""
    return Resource(ResourceKind.TOPIC, name)


def group(name: str) -> Resource:
    """Return a consumer group; of its retry or dead-letter topic, the group."""
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        name = name.removeprefix(prefix)
    return Resource(ResourceKind.GROUP, name)


def action_of(text: str) -> Action | None:
    """Return the action of a name, in any case; None when there is none."""
    return _member(Action, text)


def effect_of(text: str) -> Decision | None:
    """Return what a policy says, in any case; None when it is neither."""
    return _member(Decision, text)


def policy_type_of(text: str) -> PolicyType | None:
    """Return the type of a policy, in any case; None when there is none of that name."""
    return _member(PolicyType, text)


def user_type_of(text: str) -> UserType | None:
    """Return the type of a user, in any case; None when there is none of that name."""
    return _member(UserType, text)


def user_status_of(text: str) -> UserStatus | None:
    """Return the status of a user, in any case; None when there is none of that name."""
    return _member(UserStatus, text)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy: about a resource, for some actions, from some addresses (from everywhere when there are none)."""

    resource: Resource
    actions: frozenset[Action]
    effect: Decision
    sources: tuple[str, ...] = ()
    networks: tuple[Network, ...] = field(default=(), compare=False, repr=False)
    order: tuple[Action, ...] = field(default=(), compare=False, repr=False)
    """The actions as they were given."""

    def fits(self, asked: Resource, actions: Iterable[Action], source: IpAddress | None) -> bool:
        """Tell whether it is about this access."""
        return self.resource.covers(asked) and self._names(actions) and self._comes_from(source)

    def _names(self, actions: Iterable[Action]) -> bool:
        own = self.actions
        return Action.ALL in own or any(action is Action.ANY or action in own for action in actions)

    def _comes_from(self, source: IpAddress | None) -> bool:
        if not self.networks:
            return True
        return source is not None and any(source in network for network in self.networks)


def entry(resource: Resource, actions: Iterable[Action], effect: Decision, sources: Iterable[str] = ()) -> PolicyEntry:
    """Return a policy; raises ValueError for a source that is no address and no network."""
    order, sources = tuple(dict.fromkeys(actions)), tuple(sources)
    return PolicyEntry(resource, frozenset(order), effect, sources, tuple(map(network_of, sources)), order)


def network_of(text: str) -> Network:
    """Return the network of an address or of a network with its bits; raises ValueError."""
    return ipaddress.ip_network(text.strip(), strict=False)


Policies = dict[PolicyType, tuple[PolicyEntry, ...]]
"""The policies of one user: at most one entry for each resource in each type."""


def with_entries(policies: Policies, kind: PolicyType, entries: Iterable[PolicyEntry]) -> Policies:
    """Return policies with entries put in; the one about the same resource is replaced where it stands."""
    kept = {each.resource: each for each in policies.get(kind, ())}
    kept.update((each.resource, each) for each in entries)
    return {**policies, kind: tuple(kept.values())}


def without_entry(policies: Policies, kind: PolicyType, resource: Resource) -> Policies:
    """Return policies without the one about a resource."""
    left = tuple(each for each in policies.get(kind, ()) if each.resource != resource)
    rest = {name: entries for name, entries in policies.items() if name is not kind}
    return {**rest, kind: left} if left else rest


def _member(kind: type[E], text: str) -> E | None:
    wanted = text.strip().lower()
    return next((each for each in kind if each.value.lower() == wanted), None)
