"""All workloads by name."""

from collections.abc import Callable, Mapping

from chaos.load.workload import Workload
from chaos.workloads.admin import AdminWorkload
from chaos.workloads.bank import BankWorkload
from chaos.workloads.groups import GroupsWorkload
from chaos.workloads.offsets import OffsetsWorkload
from chaos.workloads.once import OnceWorkload
from chaos.workloads.orderly import OrderlyWorkload
from chaos.workloads.requests import RequestsWorkload
from chaos.workloads.send import SendWorkload
from chaos.workloads.timers import TimersWorkload
from chaos.workloads.transactions import TransactionsWorkload

WORKLOADS: Mapping[str, Callable[[], Workload]] = {
    "send": SendWorkload,
    "once": OnceWorkload,
    "groups": GroupsWorkload,
    "orderly": OrderlyWorkload,
    "offsets": OffsetsWorkload,
    "admin": AdminWorkload,
    "bank": BankWorkload,
    "transactions": TransactionsWorkload,
    "timers": TimersWorkload,
    "requests": RequestsWorkload,
}


def make_workload(one: str | Callable[[], Workload]) -> Workload:
    """Return a workload for one run, by its name or by its class; raises KeyError for a name that there is not."""
    return WORKLOADS[one]() if isinstance(one, str) else one()
