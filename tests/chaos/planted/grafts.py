"""Replaces one part of the product by another one, in this process. What is replaced must be there."""

from collections.abc import Callable
from inspect import Parameter, signature
from types import ModuleType
from typing import Any


class NothingToPlantInto(Exception):
    """The product has no such part any more, or calls it otherwise: the planted bug must follow it."""


def graft(owner: type | ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Replace what `owner` itself defines under `name` by what `make` makes of it. Raises NothingToPlantInto."""
    if name not in vars(owner):
        raise NothingToPlantInto(f"{owner.__name__} defines no {name}: the planted bug has nothing to replace")
    honest = vars(owner)[name]
    planted = make(honest)
    if callable(honest) and (why := _called_otherwise(honest, planted)):
        raise NothingToPlantInto(f"{owner.__name__}.{name} takes other arguments than the planted bug: {why}")
    setattr(owner, name, planted)


def _called_otherwise(honest: Callable[..., Any], planted: Callable[..., Any]) -> str:
    """Tell why what is planted cannot take some call that the honest one takes, "" when it takes all."""
    takes, kinds = signature(honest).parameters.values(), (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    for few in (True, False):
        asked = [one for one in takes if not few or one.default is Parameter.empty]
        placed = [one.name for one in asked if one.kind in kinds]
        named = {one.name: None for one in asked if one.kind is Parameter.KEYWORD_ONLY}
        try:
            signature(planted).bind(*placed, **named)
        except TypeError as error:
            return str(error)
    return ""


def once_in(count: int) -> Callable[[], bool]:
    """Return what says yes to every so many-th question."""
    asked = 0

    def now() -> bool:
        nonlocal asked
        asked += 1
        return asked % count == 0

    return now
