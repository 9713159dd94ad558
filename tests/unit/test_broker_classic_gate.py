"""broker/master_slave/gate.py: what a slave and a fenced master refuse, with which code and words."""

from typing import cast

import pytest

from broker.master_slave.gate import CHANGES, COMMITS, LOCKS, WRITES, ClassicGate
from broker.master_slave.role import ClassicRole
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler

NOBODY = cast(Connection, None)
SERVED = (
    RequestCode.HEART_BEAT,
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
)


class Gated:
    def __init__(self, broker_id: int) -> None:
        self.role = ClassicRole(broker_id)
        self.acts = False
        self.served: list[int] = []
        handlers: dict[int, Handler] = {int(code): self._serve for code in RequestCode}
        self.table = ClassicGate(self.role, lambda: self.acts).gate(handlers)

    def _serve(self, _connection: Connection, request: Command) -> None:
        self.served.append(request.code)

    def ask(self, code: int) -> tuple[int, str]:
        """Return code and words of the refusal, (0, "") when it was served."""
        before = len(self.served)
        try:
            self.table[code](NOBODY, Command(code=code))
        except CommandError as error:
            assert len(self.served) == before
            return error.code, error.remark
        assert self.served[before:] == [code]
        return 0, ""


def test_a_master_serves_everything() -> None:
    gated = Gated(0)
    assert all(gated.ask(code) == (0, "") for code in RequestCode)


@pytest.mark.parametrize("code", sorted(WRITES | LOCKS))
def test_what_changes_the_log_is_refused_by_a_slave_with_14_and_the_master_named(code: int) -> None:
    gated = Gated(1)
    ends = code == RequestCode.END_TRANSACTION
    refused = ResponseCode.SLAVE_NOT_AVAILABLE if ends else ResponseCode.SERVICE_NOT_AVAILABLE
    assert gated.ask(code)[0] == refused
    assert "no master is known" in gated.ask(code)[1]
    gated.role.set_leader("10.0.0.1:10911")
    assert "10.0.0.1:10911" in gated.ask(code)[1]


@pytest.mark.parametrize("code", sorted(CHANGES))
def test_what_changes_the_tables_is_refused_by_a_slave_with_1(code: int) -> None:
    gated = Gated(1)
    gated.role.set_leader("10.0.0.1:10911")
    refused, words = gated.ask(code)
    assert refused == ResponseCode.SYSTEM_ERROR
    assert words == "this is a slave, it changes nothing: ask the master at 10.0.0.1:10911"


def test_a_slave_serves_reads_and_takes_offsets() -> None:
    gated = Gated(1)
    assert all(gated.ask(code) == (0, "") for code in (*SERVED, *COMMITS))


def test_every_kind_of_send_and_change_is_meant() -> None:
    assert {10, 310, 320, 36, 37} <= WRITES
    assert {17, 18, 215, 200, 225, 207, 222, 314} <= CHANGES
    assert not CHANGES & (WRITES | LOCKS | COMMITS | {int(code) for code in SERVED})


def test_a_fenced_master_says_why_and_takes_no_offsets_either() -> None:
    gated = Gated(0)
    gated.role.fence("10.0.0.2:10911 was promoted")
    for code, refused in (
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.LOCK_BATCH_MQ, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR),
    ):
        told, words = gated.ask(code)
        assert (told, "10.0.0.2:10911 was promoted" in words) == (refused, True)
    assert all(gated.ask(code) == (0, "") for code in SERVED)
    gated.role.unfence()
    assert gated.ask(RequestCode.SEND_MESSAGE_V2) == (0, "")


def test_an_acting_slave_grants_locks_and_nothing_else() -> None:
    gated = Gated(1)
    gated.acts = True
    assert all(gated.ask(code) == (0, "") for code in LOCKS)
    assert gated.ask(RequestCode.SEND_MESSAGE)[0] == ResponseCode.SERVICE_NOT_AVAILABLE
