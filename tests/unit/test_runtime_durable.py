"""runtime/durable.py: a small file is whole after any crash."""

import os
from pathlib import Path

import pytest

from runtime.durable import read_file, replace_file


def test_replace_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    assert read_file(path) is None
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert read_file(path) == b"two"
    assert path.with_name("topics.json.bak").read_bytes() == b"one"
    assert sorted(p.name for p in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_backup_serves_when_the_main_file_is_empty_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    path.write_bytes(b"")
    assert read_file(path) == b"one"
    path.unlink()
    assert read_file(path) == b"one"


@pytest.mark.parametrize("failing", ["fsync", "link", "write"])
def test_a_failure_at_any_step_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "offsets.json"
    replace_file(path, b"old")

    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, refuse)
        with pytest.raises(OSError, match="No space left"):
            replace_file(path, b"new")
    assert read_file(path) == b"old"
    replace_file(path, b"new")
    assert read_file(path) == b"new"
