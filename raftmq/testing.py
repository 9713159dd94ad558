"""The pytest plugin that comes with the package: the fixture `chaos_run`, and what it returns.

pytest finds it by itself once `raftmq[chaos]` is installed; `-p no:raftmq-chaos` leaves it out.
"""

from chaos.runs.pytest_plugin import (
    ChaosRun,
    chaos_run_fixture,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

__all__ = ["ChaosRun", "chaos_run_fixture", "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]
