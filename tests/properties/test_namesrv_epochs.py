"""R15: whatever brokers do, brokerId 0 goes to no epoch below one that another address had; a planted bug is found."""

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from namesrv.routes import MASTER_ID, Address, BrokerRegistration, RouteTable
from remoting.bodies.registry import DataVersion, TopicConfig
from runtime.clock import ManualClock

NAMES = ("a", "b")
HOSTS = ("x:1", "y:1", "z:1")
EPOCHS_MAX = 4
TOPICS = {name: TopicConfig(name, 1, 1) for name in ("t", "u")}
Event = tuple[str, str, str, int]
"""What happens, the broker name, the address, its epoch."""
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("master", "slave", "leave", "break", "silence")),
        st.sampled_from(NAMES),
        st.sampled_from(HOSTS),
        st.integers(0, EPOCHS_MAX),
    ),
    max_size=12,
)


class Forgetful(RouteTable):
    """A planted bug: the epoch goes with the last broker of a name."""

    def _forget_group(self, broker_name: str) -> None:
        super()._forget_group(broker_name)
        self.epochs.forget(broker_name)


def broken(events: list[Event], kind: type[RouteTable]) -> bool:
    """Play events; tell whether a deposed master came to stand as 0."""
    clock = ManualClock()
    table = kind(clock, topics_per_broker_max=10, brokers_max=10, epochs_max=20)
    # The dumb twin: every (epoch, address) that ever stood as 0 of a name.
    stood: dict[str, list[tuple[int, str]]] = {name: [] for name in NAMES}
    for what, name, host, epoch in events:
        at = f"{name}.{host}"
        if what in {"master", "slave"}:
            claim = BrokerRegistration(
                cluster="C",
                broker_name=name,
                broker_id=MASTER_ID if what == "master" else 1 + HOSTS.index(host),
                address=at,
                version=DataVersion(1, epoch, 1),
                topics=TOPICS,
                acting_master=False,
                link=at,
            )
            told = table.register(claim).master_address
            leads = table.groups[name].brokerAddrs.get(MASTER_ID) == at if name in table.groups else False
            highest = max(stood[name], default=(0, ""))[0]
            deposed = epoch < highest and all(by != at for number, by in stood[name] if number == highest)
            if what == "master":
                if leads and deposed:
                    return True
                # Who is refused learns who stands above him.
                assert leads or told not in {"", at}
                stood[name] += [(epoch, at)] if leads else []
        elif what == "leave":
            table.unregister(Address("C", at), name)
        elif what == "break":
            table.disconnect(at)
        else:
            clock.advance(200)
            table.expire()
    return False


@settings(max_examples=300)
@given(EVENTS)
def test_R15_no_deposed_master_stands_as_0(events: list[Event]) -> None:
    assert not broken(events, RouteTable)


def test_R15_a_name_server_whose_epochs_go_with_the_brokers_is_found_out() -> None:
    events = find(EVENTS, lambda events: broken(events, Forgetful), settings=settings(max_examples=2000, database=None))
    assert [what for what, *_ in events].count("master") == 2
    with pytest.raises(NoSuchExample):
        find(EVENTS, lambda events: broken(events, RouteTable), settings=settings(max_examples=300, database=None))
