"""broker/deadlines.py: one moment by which a request's fate is decided, whichever ways it goes (R8)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.deadlines import BEAT_SECONDS, Came, Deadlines
from broker.leader_only import AGE, AT, FROM, HOP, HOP_FLAG, LEFT, READ
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from tests.parts.forwarding import PATIENT, QUERY, FakeRole, Group, Member, send, until

SECONDS = 2.5


class Machine:
    """A member whose clock the test turns."""

    name = "n1"

    def __init__(self) -> None:
        self.time = 1000.0
        self.ages = {"n0": (0.0, 0.01)}

    def monotonic(self) -> float:
        return self.time

    def clock_ms(self) -> int:
        return 77

    def age_seconds(self, member: str, clock_ms: int) -> tuple[float, float]:
        assert clock_ms in {0, 77}
        return self.ages.get(member, (0.0, float("inf")))


@pytest.fixture
async def machine() -> Machine:
    return Machine()


@pytest.fixture
async def deadlines(machine: Machine) -> AsyncIterator[Deadlines]:
    made = Deadlines(SECONDS, machine)
    yield made
    made.close()


def hop(**fields: str) -> Command:
    request = Command.request(QUERY, ext={HOP: "1", **fields})
    request.flag |= HOP_FLAG
    return request


async def test_R8_a_deadline_is_fixed_when_the_request_came(deadlines: Deadlines, machine: Machine) -> None:
    request = send()
    assert deadlines.of(request) == 1000 + SECONDS
    machine.time += SECONDS - 0.1
    assert not deadlines.over(request)
    machine.time += 0.1
    assert deadlines.over(request)
    assert deadlines.of(request) == 1000 + SECONDS


async def test_R8_a_hop_has_what_the_first_member_left_less_the_way(deadlines: Deadlines, machine: Machine) -> None:
    request = send()
    deadlines.of(request)
    for _ in range(5):
        machine.time += BEAT_SECONDS
        deadlines._beat()
    said = deadlines.said(request)
    assert said == {LEFT: "1250", FROM: "n1", AT: "77", AGE: "1250", READ: "1250"}
    assert deadlines.of(hop(**said)) == machine.time + 1.25
    machine.ages["n0"] = 1.0, 1.1
    assert deadlines.of(hop(**{**said, FROM: "n0"})) == machine.time + 0.25
    machine.ages["n0"] = 25.0, 26.0
    assert deadlines.over(hop(**{**said, FROM: "n0"})), "it lay in the socket of a stopped process"


async def test_R8_the_wait_for_a_turn_is_part_of_the_deadline(deadlines: Deadlines, machine: Machine) -> None:
    """Of a client's request, and of one that another member passed on, whether its clock is known or not."""
    request = send()
    request.waited = 0.5
    assert deadlines.of(request) == 1000 + SECONDS - 0.5
    assert int(deadlines.said(request)[READ]) == 500
    for name, left in (("n9", 1.0), ("n0", 0.25)):
        machine.ages["n0"] = 0.75, 0.8
        passed = hop(**{LEFT: "1000", FROM: name, AT: "77"})
        passed.waited = 0.5
        assert deadlines.of(passed) == 1000 + (left if name == "n0" else left - 0.5)


async def test_A16_when_a_request_came_is_an_interval(deadlines: Deadlines, machine: Machine) -> None:
    request = send()
    deadlines.of(request)
    assert deadlines.came(request) == Came(1000, 1000)
    machine.ages["n0"] = 0.001, 0.003
    passed = hop(**{LEFT: "1900", FROM: "n0", AT: "77", AGE: "600", READ: "100"})
    came = deadlines.came(passed)
    assert came is not None
    assert came.passed
    assert came.earliest == pytest.approx(1000 - 0.603)
    assert came.latest == pytest.approx(1000 - 0.101)
    assert deadlines.came(hop(**{LEFT: "1900", FROM: "n9", AT: "77", AGE: "600"})) is None, "who knows its clock"
    assert deadlines.came(hop()) is None
    machine.time += 0.7
    waited = send()
    assert deadlines.came(waited) == Came(1000, 1000.7), "at any time of the pause"
    assert int(deadlines.said(waited)[AGE]) in {700, 701}, "never less than it is"
    assert deadlines.said(waited)[READ] == "0"


async def test_R8_nobody_lengthens_a_deadline(deadlines: Deadlines) -> None:
    assert deadlines.of(hop(**{LEFT: "999999"})) == 1000 + SECONDS
    assert deadlines.over(hop(**{LEFT: "-5"}))


async def test_a_hop_of_an_older_version_says_nothing_of_it(deadlines: Deadlines) -> None:
    assert deadlines.of(hop()) == 1000 + SECONDS


@pytest.mark.parametrize("field", [LEFT, AT])
async def test_a_hop_that_makes_no_sense_is_refused(deadlines: Deadlines, field: str) -> None:
    with pytest.raises(CommandError) as refused:
        deadlines.of(hop(**{LEFT: "1", field: "soon"}))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


async def test_R8_what_is_read_after_a_pause_may_have_waited_all_of_it(deadlines: Deadlines, machine: Machine) -> None:
    """Whether the loop reads first or beats first when the process goes on."""
    machine.time += 25
    assert deadlines.over(send())
    deadlines._beat()
    assert deadlines.over(send())
    machine.time += BEAT_SECONDS
    deadlines._beat()
    assert not deadlines.over(send()), "the next beat: it is awake"


async def test_a_busy_loop_is_no_pause(deadlines: Deadlines, machine: Machine) -> None:
    machine.time += 1.9 * BEAT_SECONDS
    assert deadlines.came_at() == machine.time
    deadlines._beat()
    assert deadlines.came_at() == machine.time


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    made = Group()
    await made.start()
    yield made
    await made.close()


async def test_R8_an_overwritten_send_past_its_deadline_is_not_stored_again(group: Group) -> None:
    """Else it is stored behind its own successful retry."""
    lost: list[tuple[Connection, Command]] = []
    follower = group.follower
    follower.answer = lambda connection, request: lost.append((connection, request))
    follower.role.become(leads=True)
    answer = group.submit(send())
    await until(lambda: len(lost) == 1)
    follower.role.become(leader_address=group.leader.address)
    lost[0][1].until = follower.forwarder._now() - 0.001
    follower.forwarder.forward_lost(*lost[0])
    told = await answer
    assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "not stored" in (told.remark or "")
    assert group.leader.taken == []


async def test_R8_a_leader_begins_nothing_for_a_hop_whose_time_is_over(group: Group) -> None:
    for code in (send().code, QUERY):
        request = hop(**{LEFT: "0"})
        request.code = code
        answer = await group.client.invoke(group.leader.address, request, 5.0)
        assert (answer.code, answer.ext.get(HOP)) == (ResponseCode.SERVICE_NOT_AVAILABLE, "1")
    assert group.leader.taken == []


async def test_R8_a_forwarded_send_says_how_much_time_is_left(group: Group) -> None:
    answer = await group.submit(send())
    assert answer.code == 0
    (taken,) = group.leader.taken
    assert 0 < int(taken.ext[LEFT]) <= PATIENT.deadline_seconds * 1000
    assert taken.until <= group.leader.forwarder._now() + PATIENT.deadline_seconds


async def test_R8_planted_a_deadline_anew_at_each_hop_is_caught() -> None:
    """The test above, of a member whose overwritten sends begin anew."""

    class Anew(Member):
        def lose(self, connection: Connection, request: Command) -> None:
            request.until = 0.0
            self.forwarder.forward_lost(connection, request)

    leader, member = Member(FakeRole(leads=True)), Anew(FakeRole(leads=True))
    await leader.start()
    await member.start()
    try:
        lost: list[tuple[Connection, Command]] = []
        member.answer = lambda connection, request: lost.append((connection, request))
        asked = asyncio.ensure_future(leader.client.invoke(member.address, send(), 5.0))
        await until(lambda: len(lost) == 1)
        member.role.become(leader_address=leader.address)
        lost[0][1].until = member.forwarder._now() - 0.001
        member.lose(*lost[0])
        assert (await asked).code == 0
        assert len(leader.taken) == 1, "stored again, past its deadline"
    finally:
        await member.close()
        await leader.close()
