"""What of chaos can be done on this machine: tried by the first test that needs it, not when tests are collected."""

import functools

import pytest

from chaos.runs.tiers import Capability, probe


@functools.cache
def capabilities() -> tuple[Capability, ...]:
    """Everything that can be tried."""
    return tuple(probe())


def skip_without(name: str) -> None:
    """Skip the test that asks, and say why, where something cannot be done."""
    (why,) = (one.why for one in capabilities() if one.name == name)
    if why:
        pytest.skip(f"{name}: {why}")
