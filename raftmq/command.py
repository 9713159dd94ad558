"""The program `raftmq`: starts the command, or says in one line which extra of the package brings what it lacks.

Nothing here may need what an extra brings.
"""

import sys

from raftmq.extras import lacking


def main() -> None:
    """Run the command; the process's exit code is its own, 1 when a package is missing."""
    try:
        from raftmq.cli.main import main as command

        command()
    except ModuleNotFoundError as error:
        line = lacking(error.name, sys.argv[1:])
        if line is None:
            raise
        print(f"raftmq: {line}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
