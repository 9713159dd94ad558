"""How the pieces of one turn go to a transport."""

import asyncio
from collections.abc import Sequence

from remoting.command import Body
from remoting.framing import VIEW_BYTES_MIN


def write_runs(transport: asyncio.Transport, pieces: Sequence[Body]) -> None:
    """Write runs of small pieces joined, and large ones as they are, all of them in one call of the system's.

    Each call by itself would wake who reads: the head of an answer cost as much as its body of 40 KB.
    """
    runs: list[Body] = []
    run: list[Body] = []
    for piece in pieces:
        if len(piece) < VIEW_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            runs.append(b"".join(run))
            run = []
        runs.append(piece)
    if run:
        runs.append(b"".join(run))
    transport.writelines(runs)
