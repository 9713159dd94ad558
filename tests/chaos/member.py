"""A broker process whose disk can lose power: `member.py --undo FILE [--fsync-ms N] [--planted BUG] broker -c FILE`.

Everything runs as deployed, but for the seam to the operating system: before a write that is not yet synced, what
stood there before is noted in the undo file. Nothing is ever undone here. When the process has been killed, the
harness may undo what no completed fdatasync covered (chaos/powerloss.py): that is what a power cut does.
"""

import argparse
import sys
import time
from pathlib import Path

from chaos.member import DiskFaults, watch_disk
from chaos.powerloss import UndoFile


class SlowDisk(DiskFaults):
    """A disk that never fails, and whose syncs take so much longer."""

    def __init__(self, fsync_s: float) -> None:
        super().__init__(None)
        self._fsync_s = fsync_s

    def before_sync(self) -> None:
        if self._fsync_s:
            # The clock of a disk cannot be turned: a slow one takes its time.
            time.sleep(self._fsync_s)


def main() -> None:
    """Read our own arguments, hand the rest to the raftmq command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--undo", type=Path, required=True)
    parser.add_argument("--fsync-ms", type=float, default=0.0)
    parser.add_argument("--planted", choices=["", "ack-before-fsync"], default="")
    options, rest = parser.parse_known_args()
    watch_disk(UndoFile(options.undo), SlowDisk(options.fsync_ms / 1000))
    if options.planted == "ack-before-fsync":
        from tests.chaos.planted import ack_before_fsync

        ack_before_fsync()
    from raftmq.cli.main import main as raftmq

    sys.argv = ["raftmq", *rest]
    raftmq()


if __name__ == "__main__":
    main()
