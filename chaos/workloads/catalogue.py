"""All workloads by name."""

from collections.abc import Callable, Mapping

from chaos.workload import Workload
from chaos.workloads.admin import AdminWorkload
from chaos.workloads.bank import BankWorkload
from chaos.workloads.groups import GroupsWorkload
from chaos.workloads.offsets import OffsetsWorkload
from chaos.workloads.send import SendWorkload

WORKLOADS: Mapping[str, Callable[[], Workload]] = {
    "send": SendWorkload,
    "groups": GroupsWorkload,
    "offsets": OffsetsWorkload,
    "admin": AdminWorkload,
    "bank": BankWorkload,
}
