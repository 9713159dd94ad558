"""Each code that is served is said to look only, to be daily work, or an administrator's change: none is forgotten.

That `auth.needs` has every code that is served is held by tests/unit/test_auth_guard.py.
"""

from itertools import combinations

from auth.needs import BROKER, NAMESRV
from remoting.audit import ADMINISTRATIVE, CHANGES
from tests.parts.classified import DAILY_WRITES, LOOKS


def test_each_code_that_is_served_is_classified_once() -> None:
    served = {int(code) for code in (*BROKER, *NAMESRV)}
    kinds = {"looks": LOOKS, "daily": DAILY_WRITES, "changes": CHANGES.keys()}
    for (one, codes), (other, others) in combinations(kinds.items(), 2):
        assert not codes & others, f"of both kinds: {one} and {other}"
    classified = LOOKS | DAILY_WRITES | CHANGES.keys()
    assert served - classified == set(), "say in tests/parts/classified.py, or remoting/audit.py, what it does"
    assert classified - served == set(), "nobody serves it any more"


def test_what_is_named_as_a_change_is_an_administrators() -> None:
    verbs = ("UPDATE_", "DELETE_", "CLEAN_", "SET_", "AUTH_CREATE_", "AUTH_UPDATE_", "AUTH_DELETE_", "PROMOTE", "PUT_")
    assert not [code for code, name in CHANGES.items() if name.startswith(verbs) and code not in ADMINISTRATIVE]
