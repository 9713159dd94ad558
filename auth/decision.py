"""Which policy decides about an access: a pure function, with RocketMQ's precedence.

Looked at are the custom policies, and the default ones only where no custom one fits. Of those that fit, the most
special one decides: one about a kind of resource before one about any; a literal before a prefix before "*"; of two
prefixes the longer. Two that are equally special cannot both be there, but if they were, the one that denies decides.
What no policy fits is denied. An access by several actions (a route is asked for by those who send and by those who
receive) is fitted by a policy that names any of them.
"""

from collections.abc import Iterable

from auth.model import Action, Decision, Pattern, Policies, PolicyEntry, PolicyType, Resource, ResourceKind
from remoting.admission import IpAddress

# The endings of RocketMQ's refusals.
NO_POLICY = "no matched policies."
DENIED = "the decision is deny."

_RANK = {Pattern.LITERAL: 0, Pattern.PREFIXED: 1, Pattern.ANY: 2}


def decide(policies: Policies, asked: Resource, actions: Iterable[Action], source: IpAddress | None) -> str | None:
    """Return why an access is denied, NO_POLICY or DENIED; None when it is allowed."""
    actions = tuple(actions)
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        fitting = [entry for entry in policies.get(kind, ()) if entry.fits(asked, actions, source)]
        if fitting:
            return DENIED if min(fitting, key=_order).effect is Decision.DENY else None
    return NO_POLICY


def _order(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    return (
        resource.kind is ResourceKind.ANY,
        _RANK[resource.pattern],
        -len(resource.name),
        entry.effect is not Decision.DENY,
    )
