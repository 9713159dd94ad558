"""Small random histories: clean ones in which some things went wrong at random, many for each set of promises."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.history.promises import DUPLICATES_ANY, DUPLICATES_NEVER, Promises
from pipeline.plain.evidence import History
from tests.planted.plant_world import MEMBERS, PROMISES, clean
from tests.spark.draft import Draft
from tests.spark.wrongs import MALFORMED, WRONGS

COUNT = int(os.environ.get("RAFTMQ_HISTORIES", "400"))
"""How many histories each check is held against its twin over."""
_GROUPS = {"g": MEMBERS, "h": ("m0", "m1", "m2")}
PROMISED: tuple[Promises, ...] = (
    replace(PROMISES, sessions_judged=True),
    replace(
        PROMISES, retention=True, stable_reads=False, leader_change_on=("kill", "pause"), faults_min=2,
        acknowledged_min=16,
    ),
    replace(PROMISES, group_members=_GROUPS, duplicates=DUPLICATES_NEVER, isolated_transactions=False),
    replace(PROMISES, may_lose_after_power_loss=True, retention=True, info_share_max=0.05, group_members=_GROUPS),
    replace(
        PROMISES, mode="single", replicas=1, may_lose_acknowledged=True, duplicates=DUPLICATES_ANY, dense_offsets=False,
        linearizable_reads=False, real_time_order=False, offsets_kept=False, fencing=False, leader_change_on=(),
    ),
)  # fmt: skip


def worlds(count: int = COUNT, which: Sequence[int] = range(len(PROMISED))) -> Iterator[list[History]]:
    """Yield a batch of histories for some of PROMISED, `count` in all."""
    each = -(-count // len(which))
    for number in which:
        yield [history(number * 1_000_003 + one, PROMISED[number]) for one in range(each)]


def history(seed: int, promises: Promises, *, malformed: bool = False) -> History:
    """Return a history of some 60 to 150 operations; in a `malformed` one numbers and attempts may be there twice."""
    rng = random.Random(seed)
    draft = Draft(clean(seed, rng.choice((8, 16, 24, 40))), rng)
    if len(promises.group_members) > 1:
        draft.split()
    wrongs = [*WRONGS, *MALFORMED] if malformed else WRONGS
    for wrong in rng.choices(wrongs, k=rng.choice((0, 1, 2, 4, 8, 12))):
        wrong(draft)
    return draft.history(promises)
