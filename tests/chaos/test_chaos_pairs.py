"""Each act upon master and slaves, once, against a real SYNC_MASTER with two slaves under load: proved, and healed.

What it tells of itself is held against who is the master before and after, and whether clients are served.
"""

import random
import re
from pathlib import Path

import pytest

from chaos.faults.base import wait_until
from chaos.faults.pairs import PROMOTIONS
from chaos.runs.nemesis import inflict, make
from chaos.site.site import Site
from tests.chaos.test_chaos_faults import Senders

# Act → what proves it.
PROOFS = {
    "promote-alive": r"\w+ promoted at \d+, epoch \d+ by force; \w+ takes nothing; \w+ follows.*all follow after",
    "promote-shorter": r"\w+ refused: .*bytes more than this one.*; \w+ promoted at \d+",
    "promote-namesrv-restart": r"\w+ promoted at \d+.*, and killed; .*; \w+ takes nothing after .*\w+ follows.*; all",
    "lose-disk": r"\w+ lost its store, [1-9]\d* bytes of log; \w+ promoted at \d+.*what \w+ had is with all",
    "empty-return": r"\w+ lost its store, .*came back empty; \w+ promoted at \d+, epoch \d+ by force; .*is with all",
}


def test_every_act_upon_a_pair_is_here() -> None:
    assert PROOFS.keys() == PROMOTIONS


@pytest.mark.timeout(150)
async def test_acts_upon_a_master_take_place_and_are_healed(tmp_path: Path) -> None:
    site = Site(tmp_path, mode="sync", seed=1)
    await site.open()
    try:
        senders = Senders(site)
        async with senders.at_work():
            await senders.served()
            for name, proof in PROOFS.items():
                master = await master_of(site)
                effect = await inflict(make(name), site, random.Random(name), lasts_s=0)
                assert re.search(proof, effect.effect), (name, effect)
                assert await master_of(site) != master, (name, effect)
                await senders.served()
        assert await site.settle(20), await site.states()
    finally:
        await site.close()


async def master_of(site: Site) -> str:
    """Return who is the master: one that is not heard of for a moment, on a busy machine, is asked again."""
    found: list[str] = []

    async def answers() -> bool:
        if (master := await site.leader()) is not None:
            found.append(master.name)
        return bool(found)

    await wait_until("a master answers", answers)
    return found[0]
