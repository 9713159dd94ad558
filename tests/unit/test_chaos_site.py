"""chaos/site/site.py: what is taken for certain about a cluster."""

from pathlib import Path
from typing import Any

import pytest

from chaos.site.site import Site
from pipeline.history.rows import UNKNOWN


async def test_R7_who_has_no_lease_is_not_taken_for_the_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut off leads for most of a second more, says so, and answers pulls with ends that are too small."""
    site = Site(tmp_path)
    state: dict[str, Any] = {"leads": True, "lease": True, "term": 7}
    monkeypatch.setattr("chaos.site.site.SiteMember.state", lambda _member: state)
    address = site.members[0].process.address
    assert await site.leads(address) == 7
    state["lease"] = False
    assert await site.leads(address) == UNKNOWN
    state |= {"leads": False, "lease": False}
    assert await site.leads(address) == UNKNOWN
    assert await site.leads("127.0.0.1:1") == UNKNOWN
