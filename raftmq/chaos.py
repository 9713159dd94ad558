"""What scenarios of one's own are made of: workloads, their senders, promises; `pip install 'raftmq[chaos]'`.

These are the public names; `raftmq.testing` has the fixture that runs them, `raftmq chaos` the command.
"""

from chaos.load.workload import Load, Plain, Workload, consuming, opened, start_senders
from chaos.runs.scenario import Scenario
from pipeline.history.promises import Promises

__all__ = ["Load", "Plain", "Promises", "Scenario", "Workload", "consuming", "opened", "start_senders"]
