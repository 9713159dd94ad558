"""runtime/durable.py: a small file is whole after any crash."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.durable import read_file, replace_file, replace_reserved


def test_replace_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    assert read_file(path) is None
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert read_file(path) == b"two"
    assert path.with_name("topics.json.bak").read_bytes() == b"one"
    assert sorted(p.name for p in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_what_was_closed_to_others_stays_closed(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    replace_file(path, b"open")
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    replace_file(path, b"closed")
    # What a crash left is open to others.
    (tmp_path / "conf.tmp").write_bytes(b"half")
    replace_file(path, b"closed again", 0o600)
    for name in ("conf", "conf.bak"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"closed again"


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


def test_reserved_room_is_written_over_and_nothing_new_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vote"
    replace_reserved(path, b"0" * 76)
    replace_reserved(path, b"1" * 76)
    replace_reserved(path, b"2" * 76)

    def full(name: str, flags: int, *_mode: int) -> int:
        # A full disk: no file is made, none is made longer, and what was given back is somebody else's.
        if Path(name).is_file():
            assert not flags & os.O_TRUNC
            assert Path(name).stat().st_size == 76
        else:
            assert Path(name).is_dir(), name
        return real(name, flags)

    real = os.open
    monkeypatch.setattr(os, "open", full)
    known = {p.stat().st_ino for p in tmp_path.iterdir()}
    assert len(known) == 3
    for number in range(3, 9):
        replace_reserved(path, b"%d" % number * 76)
        assert path.read_bytes() == b"%d" % number * 76
        assert path.with_name("vote.bak").read_bytes() == b"%d" % (number - 1) * 76
        assert {p.stat().st_ino for p in tmp_path.iterdir()} == known


@pytest.mark.parametrize("dies_after", range(6))
def test_a_crash_at_any_step_of_a_reserved_one_leaves_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: int
) -> None:
    path = tmp_path / "vote"
    for number in range(3):
        replace_reserved(path, b"%d" % number * 76)
    left = dies_after

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patch:
        for owner, name in ((os, "write"), (os, "fsync"), (os, "link"), (Path, "replace")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        with suppress(KeyboardInterrupt):
            replace_reserved(path, b"new!" * 19)
    assert path.read_bytes() in {b"2" * 76, b"new!" * 19}
    # What comes next writes over nothing that counts, even if it fails.
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted(os.fsync))
        left = 0
        before = path.read_bytes()
        with suppress(KeyboardInterrupt):
            replace_reserved(path, b"lost" * 19)
        assert path.read_bytes() == before
    for number in range(3):
        replace_reserved(path, b"%d" % number * 76)
        assert path.read_bytes() == b"%d" % number * 76
