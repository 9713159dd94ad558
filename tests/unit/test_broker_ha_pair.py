"""What a slave must not forget (R16), over any crash and any damage."""

from pathlib import Path

import pytest

from broker.settings.pair_memory import (
    PAIR_NAME,
    PairMemory,
    copying_anew,
    cutting,
    load_memory,
    note_master,
    note_uncommitted_tail,
    save_memory,
)
from tests.parts.slave_tools import open_master, send
from tests.parts.store_tools import make_config


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    assert load_memory(tmp_path) == PairMemory()
    for memory in (PairMemory(True, 7, None, 3, "10.0.0.1:10911"), PairMemory(False, 0, 9)):
        save_memory(tmp_path, memory)
        assert load_memory(tmp_path) == memory


@pytest.mark.parametrize(
    "content",
    [
        b"no JSON",
        b"[]",
        b"{}",
        b'{"open": 1, "covered": 0, "freeFrom": null, "epoch": 0, "master": ""}',
        b'{"open": false, "covered": "0", "freeFrom": null, "epoch": 0, "master": ""}',
        b'{"open": false, "covered": 0, "freeFrom": true, "epoch": 0, "master": ""}',
    ],
)
def test_R16_a_file_that_cannot_be_understood_protects_everything(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / PAIR_NAME).parent.mkdir()
    (tmp_path / PAIR_NAME).write_bytes(content)
    assert load_memory(tmp_path).covered_upto(12345) == 12345
    assert PAIR_NAME in caplog.text


def test_R16_behind_a_sync_master_everything_is_covered_until_it_is_known_to_be_over() -> None:
    memory = PairMemory().following(sync=True, end=100, epoch=1, master="a")
    assert memory.covered_upto(5000) == 5000
    again = memory.following(sync=True, end=5000, epoch=1, master="a")
    assert again == memory, "nothing to write while it lasts"
    over = again.following(sync=False, end=6000, epoch=1, master="a")
    assert over.covered_upto(9000) == 6000
    assert over.following(sync=False, end=9000, epoch=1, master="a") == over
    assert over.following(sync=True, end=9000, epoch=1, master="a").covered_upto(9500) == 9500


def test_R16_the_epoch_never_falls() -> None:
    assert PairMemory(epoch=5).following(sync=False, end=0, epoch=4, master="a").epoch == 5


def test_R16_what_is_cut_is_covered_no_more_and_what_stays_still_is() -> None:
    assert PairMemory(True, 10).cut(50) == PairMemory(False, 50)
    assert PairMemory(False, 30).cut(50) == PairMemory(False, 30)
    assert PairMemory(False, 80, 80, 2, "a").cut(50) == PairMemory(False, 50, None, 2, "a")


def test_R16_a_tail_above_the_commit_point_is_free_until_a_master_is_followed(tmp_path: Path) -> None:
    note_uncommitted_tail(tmp_path, 400)
    memory = load_memory(tmp_path)
    assert (memory.free_from, memory.covered_upto(900)) == (400, 400)
    assert memory.following(sync=False, end=400, epoch=0, master="a").free_from is None


def test_R16_a_sync_master_notes_that_its_own_log_is_covered(tmp_path: Path) -> None:
    save_memory(tmp_path, PairMemory(False, 10, 20, 3, "a", "L"))
    assert note_master(tmp_path, sync=True, log_range=(0, 400)) == PairMemory(True, 10, None, 3, "a", "L")
    assert load_memory(tmp_path) == PairMemory(True, 10, None, 3, "a", "L")
    note_master(tmp_path, sync=False, log_range=(0, 500))
    assert load_memory(tmp_path) == PairMemory(False, 500, None, 3, "a", "L")
    note_master(tmp_path, sync=False, log_range=(0, 900))
    assert load_memory(tmp_path).covered == 500


def test_R16_a_log_that_is_begun_anew_gets_another_name_and_no_other_does(tmp_path: Path) -> None:
    first = note_master(tmp_path, sync=False, log_range=(0, 0)).log_id
    assert len(first) == 32
    # Nothing was written: what comes now may come after a log that was lost while its folder was not.
    second = note_master(tmp_path, sync=False, log_range=(0, 0)).log_id
    assert second != first
    # With messages in it, or when they have all expired, it is the same one.
    for sync, log_range in ((False, (0, 500)), (True, (0, 900)), (False, (1024, 1024))):
        assert note_master(tmp_path, sync=sync, log_range=log_range).log_id == second
    # A store of an earlier version has none yet; one that cannot be read has lost it.
    for content in (b'{"open":false,"covered":0,"freeFrom":null,"epoch":0,"master":""}', b"{"):
        (tmp_path / PAIR_NAME).write_bytes(content)
        assert len(note_master(tmp_path, sync=False, log_range=(0, 900)).log_id) == 32
    # And a slave has its master's.
    memory = PairMemory(log_id="own").following(sync=False, end=9, epoch=0, master="a", log_id="L")
    assert memory.log_id == "L"
    assert memory.cut(5).log_id == "L"
    assert memory.anew() == PairMemory()


def test_R16_a_cut_keeps_what_it_takes_and_forgets_no_more_than_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path)
    store = open_master(tmp_path)
    send(store, 50)
    border = store.written
    send(store, 7, 100)
    store.close()
    save_memory(config.root, PairMemory(open=True))
    action = cutting(border, "the master has less")
    assert "the master has less" in action.why
    assert action.act is not None
    action.act(config)
    assert "7 records" in caplog.text
    assert load_memory(config.root) == PairMemory(False, border)
    store = open_master(tmp_path)
    assert store.written == border
    store.close()
    # Once more: a crash may have come between the two.
    action.act(config)
    assert "nothing was cut" in caplog.text


def test_R16_a_log_that_is_begun_anew_is_kept_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(tmp_path)
    store = open_master(tmp_path)
    send(store, 50)
    store.close()
    save_memory(config.root, PairMemory(open=True, epoch=4))
    action = copying_anew("nothing is in common")
    assert action.act is not None
    action.act(config)
    (kept,) = (config.root / "cut").iterdir()
    assert str(kept) in caplog.text
    assert load_memory(config.root) == PairMemory(epoch=4)
    store = open_master(tmp_path)
    assert store.written == 0
    store.close()
