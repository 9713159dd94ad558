"""store/files/owner_only.py: messages, and in a group's log users' secret keys, are for the store's owner alone."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.files.owner_only import close_log_to_others
from store.messagestore import MessageStore
from store.slave.truncation import cut_folder
from tests.parts.store_tools import HOST, fill, make_config


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_log_files_are_their_owners_from_the_start_and_so_is_what_is_cut_off(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    store = MessageStore.open(config, store_host=HOST, stepped=True)
    fill(store, 1000)
    store.close()
    assert len(list(config.log_folder.iterdir())) > 1
    assert modes(config.log_folder) == {0o600}
    cut = cut_folder(config, 1)
    assert cut is not None
    assert modes(cut.kept_in / "commitlog") == {0o600}


def test_files_that_others_could_read_are_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(tmp_path)
    kept = config.root / "cut" / "1-2" / "commitlog"
    paths = [config.log_folder / f"{0:020d}", config.log_folder / f"{65536:020d}", kept / f"{0:020d}"]
    elsewhere = tmp_path / "elsewhere"
    for path in (*paths, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"messages")
    paths[1].chmod(0o400)
    (config.log_folder / "link").symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING):
        assert close_log_to_others(config) == 2
    assert [path.stat().st_mode & 0o777 for path in (*paths, elsewhere)] == [0o600, 0o400, 0o600, 0o644]
    assert "2 files of messages could be read or changed by others" in caplog.text
    assert close_log_to_others(config) == 0


def test_a_store_that_is_not_there_yet_has_nothing_to_close(tmp_path: Path) -> None:
    assert close_log_to_others(make_config(tmp_path)) == 0
