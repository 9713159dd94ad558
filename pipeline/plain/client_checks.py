"""The checks of a client history, A1 to A26, in plain Python, for up to some 100,000 operations.

What each judges stands in its docstring. None takes more than n log n steps of n operations and reads.
"""

from collections.abc import Callable

from pipeline.history.results import Finding
from pipeline.plain.check_copies import check_a4, check_a5, check_a6, check_a7, check_a8, check_a9
from pipeline.plain.check_groups import check_a16, check_a17, check_a19, check_a20
from pipeline.plain.check_liveness import check_a26
from pipeline.plain.check_loss import check_a1, check_a2, check_a3, check_a13
from pipeline.plain.check_order import check_a10, check_a11, check_a12, check_a14, check_a15, check_a22, check_a23
from pipeline.plain.check_service import check_a24, check_a25
from pipeline.plain.check_transactions import check_a18, check_a21
from pipeline.plain.evidence import History

CLIENT_CHECKS: tuple[Callable[[History], Finding], ...] = (
    check_a1,
    check_a2,
    check_a3,
    check_a4,
    check_a5,
    check_a6,
    check_a7,
    check_a8,
    check_a9,
    check_a10,
    check_a11,
    check_a12,
    check_a13,
    check_a14,
    check_a15,
    check_a16,
    check_a17,
    check_a18,
    check_a19,
    check_a20,
    check_a21,
    check_a22,
    check_a23,
    check_a24,
    check_a25,
    check_a26,
)
