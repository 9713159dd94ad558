"""The first process in there (chaos/host/namespaces.py): it makes one run, and dies with who started it.

    python -m chaos.runs.namespace_main RUN_FOLDER

A pickled scenario and seed come by standard input, which stays open; progress leaves by standard output, a line each.
"""

import os
import pickle
import sys
import threading
import traceback
from pathlib import Path

import orjson

from chaos.runs.run import Run, RunError
from chaos.runs.schedule import load
from pipeline.history.folder import SCHEDULE
from runtime.loop import run


def main() -> None:
    """Make the run that standard input describes."""
    # What is printed by chance goes to the terminal, and the pipe is ours alone.
    pipe = os.dup(1)
    os.dup2(2, 1)

    def tell(**values: object) -> None:
        os.write(pipe, orjson.dumps(values) + b"\n")

    source, folder = sys.stdin.buffer, Path(sys.argv[1])
    scenario, seed = pickle.loads(source.read(int.from_bytes(source.read(8), "big")))  # noqa: S301 # ours, by a pipe
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        made = Run(scenario, seed, folder, load(folder / SCHEDULE), lambda what, n: tell(say=what, acknowledged=n))
        run(made.run())
    except Exception as error:
        traceback.print_exc()
        tell(error=str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}")
        sys.exit(1)


def _end_with_parent() -> None:
    """End at once when the process that started this one is gone: everything in here ends with it."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
