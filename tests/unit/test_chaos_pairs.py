"""chaos/faults/pairs.py: how a lost copy is seen, and what is said about it."""

import random
from pathlib import Path

import pytest

from chaos.faults import pairs
from chaos.faults.base import CopyLost, Unable
from chaos.faults.pairs import PROMOTIONS, Copy, LostDisk, log_digest, wipe
from chaos.runs.nemesis import FAULTS
from chaos.runs.scenario import Scenario, promised
from chaos.runs.self_checks import COPIES_CHECK, _copies, _whole
from pipeline.history.results import Verdict
from tests.parts.chaos_site import DoubledSite

FILE = 100


def log(store: Path, content: bytes, begin: int = 0) -> None:
    folder = store / "commitlog"
    folder.mkdir(exist_ok=True)
    for at in range(0, len(content), FILE):
        (folder / f"{begin + at:020d}").write_bytes(content[at : at + FILE].ljust(FILE, b"\0"))


def test_a_digest_covers_the_bytes_between_two_positions_over_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for store in (one, other):
        store.mkdir()
    content = bytes(range(250))
    log(one, content)
    log(other, content[FILE:], begin=FILE)
    assert log_digest(one, FILE + 5, 240) == log_digest(other, FILE + 5, 240) != ""
    assert log_digest(one, 0, 240) != log_digest(one, 0, 239)
    # What is not there is no copy: before the begin, or behind the end.
    assert log_digest(other, 0, 240) == log_digest(one, 0, 301) == ""
    (one / "commitlog" / f"{FILE:020d}").unlink()
    assert log_digest(one, 0, 240) == ""


async def test_a_copy_that_was_replaced_is_lost_and_makes_a_run_invalid(tmp_path: Path) -> None:
    site = DoubledSite(tmp_path, 2)
    slave = site.members[1]
    log(slave.store, b"a" * 150)
    copy = Copy(slave.name, 0, 150, log_digest(slave.store, 0, 150))
    await pairs._kept(site, slave, copy, 0.0)
    log(slave.store, b"b" * 150)
    with pytest.raises(CopyLost, match="n1 has what n1 had up to 150: not within 0 s"):
        await pairs._kept(site, slave, copy, 0.0)
    info = {
        "copy_lost": "n1 has what n1 had",
        "not_healed": "n1 has what n1 had",
        "fired": [],
        "closings": {"scan": True},
    }
    (finding,) = _copies(info)
    assert (finding.check, finding.verdict) == (COPIES_CHECK, Verdict.INVALID)
    assert _whole(info).verdict is Verdict.UNKNOWN


def test_copies_are_judged_where_a_fault_took_a_masters_place() -> None:
    fired = [{"name": "lose-disk", "effect": "done"}, {"name": "lose-disk", "effect": ""}]
    (finding,) = _copies({"fired": fired})
    assert (finding.verdict, finding.count) == (Verdict.VALID, 1)
    assert _copies({"fired": [{"name": "kill-leader", "effect": "done"}]}) == ()
    assert _copies({}) == ()


async def test_a_wiped_master_comes_back_as_the_master_that_it_was(tmp_path: Path) -> None:
    site = DoubledSite(tmp_path, 2)
    master = site.members[0]
    log(master.store, b"a" * 150)
    assert master.undo is not None
    master.undo.write_text("notes")
    config = master.store.parent / "broker.conf"
    config.write_text("brokerRole=SLAVE\nbrokerId=1\n")
    assert await wipe(master, "SYNC_MASTER") == "n0 lost its store, 200 bytes of log"
    assert not master.store.exists()
    assert not master.undo.exists()
    assert not master.process.running
    assert config.read_text().endswith("brokerRole=SYNC_MASTER\nbrokerId=0\n")


async def test_a_raft_group_has_no_master_to_be_deposed(tmp_path: Path) -> None:
    with pytest.raises(Unable, match="no master whose slave could be promoted"):
        await LostDisk().fire(DoubledSite(tmp_path), random.Random(1))


def test_clients_ask_all_members_where_another_one_may_be_promoted() -> None:
    def moves(mode: str, *faults: str) -> bool:
        return Scenario("s", promised("sync", 2), mode=mode, nodes=2, faults=faults).moves  # type: ignore[arg-type]

    assert FAULTS.keys() >= PROMOTIONS
    assert (moves("raft"), moves("sync", "kill-leader"), moves("sync", "lose-disk")) == (True, False, True)
