"""client/admin/convert.py: what a conversion says that somebody's death ends half way."""

from collections.abc import Mapping
from typing import Any

import pytest

from client.admin import convert as admin_convert
from client.admin.client import BrokerEntry
from client.admin.convert import ConvertAdmin
from client.errors import RouteError
from remoting.codes import ClassicCode
from remoting.errors import ConnectError

PEERS = "n0-h:1;n1-h:2"


class Admin(ConvertAdmin):
    """Knows a master and its slave; either may die with the order that it is given."""

    def __init__(self, dies: str) -> None:
        self.dies = dies
        self.dead: set[str] = set()
        self.members: set[str] = set()

    async def brokers(self, cluster: str | None = None) -> list[BrokerEntry]:
        assert cluster is None
        return [BrokerEntry("C", "b", 0, "m:1"), BrokerEntry("C", "b", 1, "s:1")]

    async def _classic(
        self,
        address: str,
        code: ClassicCode,
        fields: Mapping[str, Any] | None = None,
        timeout: float | None = None,  # as its super
    ) -> dict[str, Any]:
        assert (code, fields, timeout) == (ClassicCode.STATUS, None, None)
        self._lives(address)
        if address in self.members:
            return {"role": "RAFT"}
        return {"role": "SLAVE" if address == "s:1" else "ASYNC_MASTER", "brokerId": int(address == "s:1")}

    async def raft_status(self, address: str) -> dict[str, Any]:
        self._lives(address)
        number = int(address == "s:1")
        return {"self": f"n{number}", "leads": number == 0, "classic": False, "members": [], "peers": {}}

    async def to_raft(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._lives(address)
        if not body.get("check"):
            if self.dies == address:
                self.dead.add(address)
                self._lives(address)
            self.members.add(address)
        return {"fileBytes": 1, "warnings": [], "slavesBehind": [], "slavesWithAll": ["s"], "end": 9}

    def _lives(self, address: str) -> None:
        if address in self.dead:
            raise ConnectError(f"no connection to {address}")


@pytest.mark.parametrize(
    ("dies", "stand"),
    [
        ("m:1", "m:1 does not answer (no connection to m:1); s:1 is SLAVE with brokerId 1"),
        ("s:1", "m:1 is n0 of a Raft group, which it leads; s:1 does not answer (no connection to s:1)"),
    ],
)
async def test_a_conversion_that_a_death_interrupts_says_what_state_it_left_all_in(
    monkeypatch: pytest.MonkeyPatch, dies: str, stand: str
) -> None:
    monkeypatch.setattr(admin_convert, "REGISTER_SECONDS", 0.0)
    steps: list[str] = []
    with pytest.raises(RouteError) as told:
        await Admin(dies).convert_to_raft("b", PEERS, steps.append)
    assert str(told.value) == (
        f"no connection to {dies}. As it stands: {stand}. What was done stays done: repeat the command to go on"
    )
