"""Users and policies as RocketMQ's tools send and show them (codes 3001 to 3010), and as they are kept on disk.

What is wrong is refused with RocketMQ's words. Whatever is shown has no password.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from auth.model import (
    USER_PREFIX,
    Action,
    Policies,
    PolicyEntry,
    PolicyType,
    User,
    UserStatus,
    UserType,
    action_of,
    effect_of,
    entry,
    policy_type_of,
    resource_of,
    user_status_of,
    user_type_of,
    with_entries,
)
from remoting.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import ResponseCode
from remoting.errors import CommandError

# Entries of one user's policies: each request is compared with all of them, once.
ENTRIES_MAX = 1000
# Addresses of one policy.
SOURCES_MAX = 100
# Characters of a resource: as long as a topic's name of another kind can be.
RESOURCE_LENGTH_MAX = 1024

T = TypeVar("T")


def refused(why: str) -> CommandError:
    """Return RocketMQ's refusal (16) with these words."""
    return CommandError(ResponseCode.NO_PERMISSION, why)


def user_shown(user: User) -> UserInfo:
    """Return a user without its password."""
    return UserInfo(user.name, None, user.kind, user.status)


def acl_shown(
    name: str, policies: Policies, keep: Callable[[PolicyEntry], bool] = lambda _entry: True
) -> AclInfo | None:
    """Return a user's policies, those of them that are kept; None when there are none."""
    shown = []
    for kind, entries in policies.items():
        rows = [_entry_shown(each) for each in entries if keep(each)]
        if rows:
            shown.append(PolicyInfo(kind, rows))
    return AclInfo(USER_PREFIX + name, shown) if shown else None


def user_name(subject: str) -> str:
    """Return the user of a subject; raises CommandError (1, RocketMQ's words) for one that is none."""
    kind, colon, name = subject.partition(":")
    if not colon or kind.lower() + ":" != USER_PREFIX.lower():
        raise CommandError(ResponseCode.SYSTEM_ERROR, "An system error occurred, please try again later.")
    return name


def made_user(name: str, info: UserInfo) -> User:
    """Return the user that is to be made; an unknown type is Normal, an unknown status enable, as in RocketMQ."""
    if not (info.password or "").strip():
        raise refused("password can not be blank")
    return User(
        name,
        info.password or "",
        user_type_of(info.userType or "") or UserType.NORMAL,
        user_status_of(info.userStatus or "") or UserStatus.ENABLE,
    )


def changed_user(old: User, info: UserInfo) -> User:
    """Return a user with what is given changed; what is not known is ignored, as in RocketMQ."""
    return User(
        old.name,
        info.password if (info.password or "").strip() and info.password else old.secret,
        user_type_of(info.userType or "") or old.kind,
        user_status_of(info.userStatus or "") or old.status,
    )


def with_policies(old: Policies, infos: Iterable[PolicyInfo] | None) -> Policies:
    """Return policies with others put in. Raises CommandError for what RocketMQ refuses, and beyond ENTRIES_MAX."""
    policies = dict(old)
    some = False
    for info in infos or ():
        some = True
        if not info.entries:
            raise refused("The policy entries is empty.")
        kind = policy_type_of(info.policyType or "") or PolicyType.CUSTOM
        policies = with_entries(policies, kind, [_made_entry(each) for each in info.entries])
    if not some:
        raise refused("The policies is empty.")
    if sum(map(len, policies.values())) > ENTRIES_MAX:
        raise refused(f"a user has at most {ENTRIES_MAX} policies")
    return policies


def stored_user(user: User) -> dict[str, Any]:
    """Return a user as it is kept and replicated, its password included."""
    return {"username": user.name, "password": user.secret, "userType": str(user.kind), "userStatus": str(user.status)}


def read_user(fields: Any) -> User:
    """Return a user that was kept; raises ValueError."""
    info = _converted(fields, UserInfo)
    if not info.username or not info.password:
        raise ValueError("a user without a name or without a password")
    return made_user(info.username, info)


def stored_policies(policies: Policies) -> list[Any]:
    """Return a user's policies as they are kept and replicated."""
    return [
        {"policyType": str(kind), "entries": [msgspec.to_builtins(_entry_shown(each)) for each in entries]}
        for kind, entries in policies.items()
    ]


def read_policies(rows: Any) -> Policies:
    """Return policies that were kept; raises ValueError."""
    try:
        return with_policies({}, _converted(rows, list[PolicyInfo]))
    except CommandError as error:
        raise ValueError(str(error)) from error


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # Its text names places and types, never values.
        raise ValueError(str(error)) from None


def _made_entry(info: PolicyEntryInfo) -> PolicyEntry:
    text = info.resource or ""
    resource = resource_of(text)
    if resource is None or len(text) > RESOURCE_LENGTH_MAX:
        raise refused("The resource is null.")
    actions = [action for action in map(action_of, info.actions) if action is not None]
    if not actions:
        raise refused("The actions is empty.")
    if Action.ANY in actions:
        raise refused("The actions can not be Any.")
    sources = info.sourceIps or []
    if len(sources) > SOURCES_MAX:
        raise refused(f"a policy has at most {SOURCES_MAX} source addresses")
    if not all(source.strip() for source in sources):
        raise refused("The source ip is empty.")
    effect = effect_of(info.decision or "")
    try:
        made = entry(resource, actions, effect, sources) if effect is not None else None
        if made is None:
            raise refused("The decision is null or illegal.")
    except ValueError:
        raise refused("The source ip is invalid.") from None
    return made


def _entry_shown(each: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        each.resource.key, [str(action) for action in each.order], list(each.sources) or None, each.effect
    )
