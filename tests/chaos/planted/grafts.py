"""Replaces one part of the product by another one, in this process. What is replaced must be there."""

from collections.abc import Callable
from types import ModuleType
from typing import Any


class NothingToPlantInto(Exception):
    """The product has no such part any more: the planted bug must follow it, or it would plant nothing."""


def graft(owner: type | ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Replace what `owner` itself defines under `name` by what `make` makes of it. Raises NothingToPlantInto."""
    if name not in vars(owner):
        raise NothingToPlantInto(f"{owner.__name__} defines no {name}: the planted bug has nothing to replace")
    setattr(owner, name, make(vars(owner)[name]))


def once_in(count: int) -> Callable[[], bool]:
    """Return what says yes to every so many-th question."""
    asked = 0

    def now() -> bool:
        nonlocal asked
        asked += 1
        return asked % count == 0

    return now
