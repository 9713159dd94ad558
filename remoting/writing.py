"""How the pieces of one turn go to a transport."""

import asyncio
from collections.abc import Sequence

from remoting.command import Body
from remoting.framing import VIEW_BYTES_MIN


def write_runs(transport: asyncio.Transport, pieces: Sequence[Body]) -> None:
    """Write runs of small pieces joined, and large ones as they are."""
    run: list[Body] = []
    for piece in pieces:
        if len(piece) < VIEW_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            transport.write(b"".join(run))
            run = []
        transport.write(piece)
    if run:
        transport.write(b"".join(run))
