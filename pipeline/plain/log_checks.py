"""The checks of what members left behind, B1 to B14, in plain Python; each states exactly what it calls a violation.

They look at each broker group by itself: all members' entries, records, queues and files side by side, joined with what
clients were told and with what members said of themselves. pipeline/replicas merges the members' logs.
"""

from collections.abc import Callable

from pipeline.history.results import Finding
from pipeline.plain.check_log_acks import check_b2, check_b8, check_b9, check_b10
from pipeline.plain.check_log_bytes import check_b1, check_b3, check_b4, check_b13
from pipeline.plain.check_log_derived import check_b7, check_b11, check_b12
from pipeline.plain.check_log_promises import check_b5, check_b6, check_b14
from pipeline.plain.replicas import Replicas

LOG_CHECKS: tuple[Callable[[Replicas], Finding], ...] = (
    check_b1,
    check_b2,
    check_b3,
    check_b4,
    check_b5,
    check_b6,
    check_b7,
    check_b8,
    check_b9,
    check_b10,
    check_b11,
    check_b12,
    check_b13,
    check_b14,
)
