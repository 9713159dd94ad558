"""What all tests share: how many examples hypothesis tries, and how tests come to the workers.

HYPOTHESIS_PROFILE chooses: `default` (the same 60 examples on every run), `slow` (1,000 random ones per test),
`fuzz` (10,000).
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Properties of the store write files: how long one example takes says nothing about whether it is right.
_UNTIMED = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=60, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("slow", max_examples=1_000, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Kinds whose files take longest come first, so that no worker is left alone with one of them at the end.
_FIRST = ("interop", "chaos", "spark", "cluster", "simulation")
_TESTS = Path(__file__).parent


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep a file's tests on one worker (--dist loadgroup), and all of Spark's: one warm session serves them."""
    name = "spark" if _kind(item) == "spark" else str(item.path.relative_to(_TESTS))
    item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long kinds first."""
    items.sort(key=lambda item: _FIRST.index(_kind(item)) if _kind(item) in _FIRST else len(_FIRST))
