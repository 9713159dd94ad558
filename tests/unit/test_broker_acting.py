"""broker/master_slave/acting_master.py: which slave grants locks while there is no master, and from when on."""

from broker.master_slave.acting_master import Acting
from broker.queue_locks import TRUSTED_SECONDS
from broker.settings.config import LiveConfig, load_broker_config
from remoting.bodies.registry import BrokerMemberGroup, BrokerMemberGroupBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.errors import ConnectError
from remoting.headers.registry import Header
from runtime.clock import ManualClock


class Setting:
    """`tables`: what each NameServer knows; None: it does not answer."""

    def __init__(self, tables: dict[str, dict[int, str] | None], *, enabled: str = "true") -> None:
        self.tables = tables
        values = {"brokerRole": "SLAVE", "brokerId": "2", "namesrvAddr": ";".join(tables)}
        config, store_config, _ = load_broker_config({**values, "enableSlaveActingMaster": enabled})
        self.clock = ManualClock()
        self.alive = False
        self.acting = Acting(LiveConfig(config, store_config), self, self.clock, lambda: self.alive)

    async def call(
        self, address: str, code: int, header: Header | None = None, body: Body = b"", timeout: float = 3.0
    ) -> Command:
        assert code == RequestCode.GET_BROKER_MEMBER_GROUP, (header, body, timeout)
        table = self.tables[address]
        if table is None:
            raise ConnectError(address, "refused")
        group = BrokerMemberGroup(brokerAddrs=table)
        return Command.response(ResponseCode.SUCCESS, body=BrokerMemberGroupBody(group).encode())

    async def acts(self, seconds: float = TRUSTED_SECONDS) -> bool:
        """Tell whether it acts after so long without a master."""
        self.alive = True
        await self.acting.look()
        self.alive = False
        self.clock.advance(seconds)
        await self.acting.look()
        return self.acting.acts


async def test_the_lowest_slave_acts_when_no_lock_of_the_master_is_trusted_any_more() -> None:
    setting = Setting({"n1:9876": {2: "a:1", 3: "b:1"}})
    assert not await setting.acts(TRUSTED_SECONDS - 1)
    assert await setting.acts()
    setting.alive = True
    await setting.acting.look()
    assert not setting.acting.acts, "the master is back"


async def test_a_slave_does_not_act_beside_a_lower_one_or_a_master_that_others_see() -> None:
    assert not await Setting({"n1:9876": {1: "c:1", 2: "a:1"}}).acts()
    assert not await Setting({"n1:9876": {0: "m:1", 2: "a:1"}}).acts()
    assert not await Setting({"n1:9876": {2: "a:1"}, "n2:9876": {0: "m:1"}}).acts()


async def test_nobody_acts_unasked_or_unsure() -> None:
    assert not await Setting({"n1:9876": {2: "a:1"}}, enabled="false").acts()
    assert not await Setting({"n1:9876": None}).acts()
    assert await Setting({"n1:9876": None, "n2:9876": {2: "a:1"}}).acts()
