"""The kernel's syncs, of the real kernel."""

import os
from pathlib import Path

import pytest

from store.files.kernelsync import KernelSyncs


@pytest.mark.parametrize("machine", ["riscv64", ""])
def test_no_system_call_is_made_by_a_number_that_is_not_known(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(OSError, match="no numbers"):
        KernelSyncs()


def test_the_kernel_syncs_several_files_at_once_and_says_what_failed(tmp_path: Path) -> None:
    syncs = KernelSyncs()
    fds = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("a", "b")]
    read_end, write_end = os.pipe()
    for fd in fds:
        os.pwrite(fd, b"x" * 5000, 0)
    assert syncs.submit(fds) == 2
    assert syncs.wait() == [None, None]
    assert syncs.collect() == []
    # What is no file takes no sync.
    with pytest.raises(OSError, match="Invalid argument"):
        syncs.submit([write_end])
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncs.submit([999_999])
    # The second is refused, the first was taken.
    assert syncs.submit([fds[0], 999_999]) == 1
    assert syncs.wait() == [None]
    syncs.submit(fds)
    syncs.close()
    for fd in (*fds, read_end, write_end):
        os.close(fd)


def test_closed_syncs_leave_nothing_open() -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(10):
        KernelSyncs().close()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
