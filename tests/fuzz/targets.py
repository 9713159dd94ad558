"""Every decoder that reads bytes of others, by name, and which inputs each is given: the same from the same seed."""

from functools import cache
from random import Random

from tests.fuzz import targets_auth, targets_broker, targets_http, targets_raft, targets_remoting
from tests.fuzz.bounds import Target
from tests.fuzz.mutate import mutated


@cache
def targets() -> dict[str, Target]:
    """Return them all."""
    found = [
        each
        for part in (targets_remoting, targets_auth, targets_broker, targets_raft, targets_http)
        for each in part.targets()
    ]
    by_name = {target.name: target for target in found}
    assert len(by_name) == len(found), "a name stands for one decoder"
    return by_name


def least(target: Target) -> int:
    """Return how many inputs a decoder has that are not made by chance."""
    return len(target.seeds) + len(target.heavy)


def input_at(target: Target, seed: int, index: int) -> bytes:
    """Return one of a decoder's inputs: first its seeds as they are, then the large ones, then what is made of them."""
    if index < len(target.seeds):
        return target.seeds[index]
    if index < least(target):
        return target.heavy[index - len(target.seeds)]()
    return mutated(target, Random(f"{seed}/{target.name}/{index}"))


def shares(chosen: list[Target], inputs: int) -> dict[str, int]:
    """Divide a number of inputs among decoders by their weight; each gets its own ones at least, so it may be more."""
    whole = sum(target.weight for target in chosen)
    return {target.name: max(least(target), -(-inputs * target.weight // whole)) for target in chosen}
