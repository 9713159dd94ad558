"""The version of RaftMQ itself, as it was installed; what it tells RocketMQ's clients to be is another matter."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("raftmq")
    except PackageNotFoundError:
        # Run from a folder that nobody installed.
        return "unknown"


RELEASE = _installed()
