"""How the pieces of one turn go to a transport."""

import asyncio
from collections.abc import Sequence

from remoting.command import Body

# From this size on a piece goes to the system as it is: to join it with others costs a copy, to name it less.
PIECE_BYTES_MIN = 4 * 1024


def write_runs(transport: asyncio.Transport, pieces: Sequence[Body]) -> None:
    """Write runs of small pieces joined, and large ones as they are, all of them in one call of the system's.

    Each call by itself would wake who reads: the head of an answer cost as much as its body of 40 KB.
    """
    runs: list[Body] = []
    run: list[Body] = []
    for piece in pieces:
        if len(piece) < PIECE_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            runs.append(b"".join(run))
            run = []
        runs.append(piece)
    if run:
        runs.append(b"".join(run))
    transport.writelines(runs)
