"""Two processes never share a store folder; the lock is one that Java sees too."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import StoreLocked
from store.files.lockfile import LOCK_NAME, LockFile

TRY = """
import sys
from pathlib import Path
from store.errors import StoreLocked
from store.files.lockfile import LockFile
try:
    LockFile(Path(sys.argv[1])).release()
except StoreLocked as error:
    print(error)
    sys.exit(3)
"""


def try_elsewhere(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", TRY, str(folder)], capture_output=True, text=True)


def test_another_process_is_kept_out(tmp_path: Path) -> None:
    lock = LockFile(tmp_path)
    refused = try_elsewhere(tmp_path)
    assert refused.returncode == 3
    assert str(tmp_path) in refused.stdout
    assert "storePathRootDir" in refused.stdout
    lock.release()
    assert try_elsewhere(tmp_path).returncode == 0


def test_the_same_process_is_kept_out_too_and_keeps_its_lock(tmp_path: Path) -> None:
    lock = LockFile(tmp_path)
    with pytest.raises(StoreLocked):
        LockFile(tmp_path)
    assert try_elsewhere(tmp_path).returncode == 3, "the refused attempt must not have dropped the lock"
    lock.release()
    lock.release()
    LockFile(tmp_path).release()


def test_byte_zero_is_locked_like_javas_file_lock(tmp_path: Path) -> None:
    lock = LockFile(tmp_path)
    pid = os.fork()
    if pid == 0:
        fd = os.open(tmp_path / LOCK_NAME, os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (tmp_path / LOCK_NAME).read_bytes() == b"lock"
    lock.release()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LockFile(tmp_path / "none")
