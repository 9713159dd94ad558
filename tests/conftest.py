"""What all tests share: how many examples hypothesis tries, and how tests come to the workers.

HYPOTHESIS_PROFILE chooses: `default` (the same 60 examples on every run), `slow` (1,000 random ones per test),
`fuzz` (10,000).
"""

import asyncio.constants
import gc
import linecache
import logging
import os
import tempfile
import traceback
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from chaos.host.processes import ServerProcess
from store.config import StoreConfig
from store.files.disk import Disk
from tests.parts.nursery import Nursery

# Properties of the store write files: how long one example takes says nothing about whether it is right.
_UNTIMED = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=60, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("slow", max_examples=1_000, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# What takes longest comes first, so that no worker is left alone with it at the end: Spark is two pieces, which took
# nearly all of a run as one.
_FIRST = ("spark", "interop", "chaos", "docs", "cluster", "simulation")
_TESTS = Path(__file__).parent
# Half of Spark's time: its checks of histories and logs against their plain twins.
_CHECKS = ("test_pipeline_check", "test_pipeline_parity")
# In asyncio's debug mode, which remembers where each callback and task was made: here it shows the most, and costs the
# least. What runs whole clusters in a process would need half as much time again.
_DEBUGGED = frozenset({"unit", "golden", "properties"})
# It notes as many callers of each; of ten, with a look at each one's file, a sixth of the time of unit tests was made.
vars(asyncio.constants)["DEBUG_STACK_DEPTH"] = 3  # Final, say its types
# Tasks and futures, which are written in C, ask for the whole stack, of which most is pytest's.
traceback.extract_stack.__defaults__ = (None, 3)
# And of each of their files whether it has changed: a twentieth of unit tests.
linecache.checkcache = lambda *_: None
# How long a callback took is the machine's doing. Tests that count what was logged met its warning beside other work.
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing %s took"))
# As in a broker (broker/main.py): with thousands of tests at hand, rounds of the collector at Python's 700 objects were
# an eighth of the processor time of unit tests, and half of it where each source file becomes a tree.
gc.set_threshold(50_000, 20, 50)
# At import aiohttp reads the certificates of all authorities, twice: a twelfth of what it takes to start a server that
# is no fork (below). Nothing here asks anybody who shows one of those (Maven has a file of its own).
os.environ["SSL_CERT_FILE"] = os.devnull
# As in the command raftmq (raftmq/cli/main.py), for the servers that tests start in other ways.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# OpenTelemetry's API is here for its own tests: it is an application's, and puts spans around each send.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

# Servers of tests are forks of one process that has imported what they import.
ServerProcess.begin = staticmethod(Nursery().begin)


# A test's time limit ends what hangs, and judges nothing. Machines of one kind differ by three times from hour to hour,
# and a test of Spark that is cut off leaves its session broken for all behind it.
_SLOW_DAY = 3


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


class _FilesWhole(LoadScopeScheduling):  # type: ignore[misc] # xdist says no types
    """A file's tests stay on one worker, as the fixtures they share do; Spark's too: a warm session serves many."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if not path.startswith("tests/spark/"):
            return path
        return "spark: checks" if path.removeprefix("tests/spark/").startswith(_CHECKS) else "spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Share the tests out by file. (xdist 3.8's groups by mark do nothing under pytest 9: each test was a group.)"""
    return _FilesWhole(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose asyncio's debug mode, before the test's loop is made."""
    item.config.option.asyncio_debug = _kind(item) in _DEBUGGED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say so when the disk was the reason: whatever broker is asked refuses messages then."""
    folder = Path(tempfile.gettempdir())
    used, limit = Disk().used_ratio(folder), StoreConfig().warning_ratio
    if used >= limit and terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"The disk of {folder} is {used:.0%} full, and from {limit:.0%} on brokers take no messages "
            "(diskSpaceWarningLevelRatio): make room, or name another folder in TMPDIR.",
            red=True,
        )


def _place(item: pytest.Item) -> tuple[int, int]:
    """By kind; files of the short kinds as if shuffled, as those that wait for something are neighbours by name."""
    kind = _kind(item)
    if kind in _FIRST:
        return _FIRST.index(kind), 0
    return len(_FIRST), zlib.crc32(item.path.name.encode())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long kinds first, and give each test its time on a slow day."""
    items.sort(key=_place)
    for item in items:
        own = item.get_closest_marker("timeout")
        if own is not None and own.args:
            item.add_marker(pytest.mark.timeout(own.args[0] * _SLOW_DAY), append=False)


def pytest_collection_finish() -> None:
    """Leave what was collected out of the collector's rounds: it stays to the end, and is most of what there is."""
    gc.collect()
    gc.freeze()
