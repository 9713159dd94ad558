"""auth/decision.py and auth/model.py: what a policy is about, and which one decides; table by table."""

import itertools

import pytest

from auth.decision import DENIED, NO_POLICY, decide
from auth.model import Action, Decision, Policies, PolicyType, Resource, ResourceKind, entry, group, resource_of, topic
from remoting.admission import address_of

ALLOW, DENY = Decision.ALLOW, Decision.DENY
ORDERS, CLUSTER = topic("orders"), Resource(ResourceKind.CLUSTER, "DefaultCluster")


def policies(*rows: tuple[str, str, Decision], kind: PolicyType = PolicyType.CUSTOM) -> Policies:
    """Policies written as "Topic:orders", "Pub,Sub", ALLOW."""
    made = []
    for text, actions, effect in rows:
        resource = resource_of(text)
        assert resource is not None
        made.append(entry(resource, [Action(name) for name in actions.split(",")], effect))
    return {kind: tuple(made)}


REAL = [action for action in Action if action not in {Action.ALL, Action.ANY}]
RESOURCES = [
    (Resource(ResourceKind.CLUSTER, "c"), "Cluster:c"),
    (Resource(ResourceKind.NAMESPACE, "n"), "Namespace:n"),
    (topic("t"), "Topic:t"),
    (group("g"), "Group:g"),
]


@pytest.mark.parametrize(("said", "asked"), list(itertools.product(REAL, REAL)))
def test_every_action_on_every_resource_is_what_the_policy_about_it_says(said: Action, asked: Action) -> None:
    for (_, text), (resource, name) in itertools.product(RESOURCES, RESOURCES):
        for effect, answer in ((ALLOW, None), (DENY, DENIED)):
            expected = answer if text == name and said is asked else NO_POLICY
            assert decide(policies((text, said, effect)), resource, [asked], None) == expected


@pytest.mark.parametrize(
    ("text", "resource", "covered"),
    [
        ("Topic:orders", ORDERS, True),
        ("topic:orders", ORDERS, True),
        ("Topic:order", ORDERS, False),
        ("Topic:orders2", ORDERS, False),
        ("Topic:ord*", ORDERS, True),
        ("Topic:orders*", ORDERS, True),
        ("Topic:pay*", ORDERS, False),
        ("Topic:*", ORDERS, True),
        ("*", ORDERS, True),
        ("*", CLUSTER, True),
        ("Cluster:*", ORDERS, False),
        ("Group:*", ORDERS, False),
        ("Cluster:*", CLUSTER, True),
        ("Group:g", group("%RETRY%g"), True),
        ("Group:g", group("%DLQ%g"), True),
    ],
)
def test_what_a_resource_covers(text: str, resource: Resource, covered: bool) -> None:
    found = resource_of(text)
    assert found is not None
    assert found.covers(resource) is covered


@pytest.mark.parametrize("text", ["", "  ", "orders", "Queue:orders", ":orders"])
def test_what_is_no_resource(text: str) -> None:
    assert resource_of(text) is None


@pytest.mark.parametrize("text", ["Topic:orders", "Topic:ord*", "Topic:*", "*", "Group:g", "Cluster:c", "Namespace:n"])
def test_a_resource_is_written_as_it_is_read(text: str) -> None:
    found = resource_of(text)
    assert found is not None
    assert found.key == text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], NO_POLICY),
        # The more special one decides, wherever it stands.
        ([("Topic:*", "Pub", ALLOW), ("Topic:orders", "Pub", DENY)], DENIED),
        ([("Topic:*", "Pub", DENY), ("Topic:orders", "Pub", ALLOW)], None),
        ([("Topic:ord*", "Pub", DENY), ("Topic:orders", "Pub", ALLOW)], None),
        ([("Topic:ord*", "Pub", ALLOW), ("Topic:*", "Pub", DENY)], None),
        ([("Topic:o*", "Pub", ALLOW), ("Topic:ord*", "Pub", DENY)], DENIED),
        ([("Topic:ord*", "Pub", ALLOW), ("Topic:o*", "Pub", DENY)], None),
        ([("*", "Pub", DENY), ("Topic:*", "Pub", ALLOW)], None),
        ([("*", "Pub", ALLOW), ("Topic:*", "Pub", DENY)], DENIED),
        ([("*", "All", ALLOW)], None),
        # One that is about another action is not about this.
        ([("Topic:orders", "Sub", DENY), ("Topic:*", "Pub", ALLOW)], None),
        ([("Topic:orders", "Sub", ALLOW)], NO_POLICY),
        ([("Group:orders", "Pub", ALLOW)], NO_POLICY),
        # What cannot be there, two about the same: the one that denies.
        ([("Topic:orders", "Pub", ALLOW), ("Topic:orders", "Pub", DENY)], DENIED),
    ],
)
def test_precedence(rows: list[tuple[str, str, Decision]], expected: str | None) -> None:
    for order in itertools.permutations(rows):
        assert decide(policies(*order), ORDERS, [Action.PUB], None) == expected


def test_default_policies_count_where_no_custom_one_fits() -> None:
    allows = policies(("Topic:*", "Pub", ALLOW), kind=PolicyType.DEFAULT)
    assert decide(allows, ORDERS, [Action.PUB], None) is None
    assert decide({**allows, **policies(("*", "Pub", DENY))}, ORDERS, [Action.PUB], None) == DENIED
    assert decide({**allows, **policies(("*", "Sub", DENY))}, ORDERS, [Action.PUB], None) is None


def test_an_access_by_several_actions_is_fitted_by_a_policy_about_one() -> None:
    allows = policies(("Topic:orders", "Sub", ALLOW))
    assert decide(allows, ORDERS, [Action.PUB, Action.SUB, Action.GET], None) is None
    assert decide(allows, ORDERS, [Action.PUB, Action.GET], None) == NO_POLICY
    assert decide(allows, ORDERS, [Action.ANY], None) is None


@pytest.mark.parametrize(
    ("sources", "host", "allowed"),
    [
        ((), "203.0.113.9", True),
        (("192.0.2.1",), "192.0.2.1", True),
        (("192.0.2.1",), "192.0.2.2", False),
        (("192.0.2.0/24", "10.0.0.0/8"), "10.1.2.3", True),
        (("192.0.2.7/24",), "192.0.2.200", True),
        (("10.0.0.0/8",), "::ffff:10.1.1.1", True),
        (("2001:db8::/32",), "2001:db8::5", True),
        (("2001:db8::/32",), "192.0.2.1", False),
        (("192.0.2.1",), "a-name", False),
    ],
)
def test_where_it_comes_from(sources: tuple[str, ...], host: str, allowed: bool) -> None:
    made: Policies = {PolicyType.CUSTOM: (entry(ORDERS, [Action.PUB], ALLOW, sources),)}
    assert (decide(made, ORDERS, [Action.PUB], address_of(host)) is None) is allowed
