"""The forwarder: two servers on loopback, one of which leads; what goes on to it, and what does not."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from broker.leader_only import HOP_FLAG, LEADER_ONLY, LEASED
from broker.raft_group.forward_limits import CLIENT_LIMITS, ForwardLimits
from broker.raft_group.forwarder import Forwarder
from remoting.address import host_bytes
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.errors import CommandError, InvokeTimeout
from remoting.server import Connection, RemotingServer, Reply
from tests.parts.forwarding import BEAT, PULL, QUERY, QUICK, SEND, FakeRole, Group, Member, send, until


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    made = Group()
    try:
        await made.start()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def hurried() -> AsyncIterator[Group]:
    """A group in which nothing has longer than half a second."""
    made = Group(limits=QUICK)
    try:
        await made.start()
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
async def test_a_send_goes_on_to_the_leader_and_its_answer_comes_back(group: Group, kind: int) -> None:
    port = await group.own_port()
    request = send()
    request.serialize_type = kind
    answer = await group.submit(request)
    assert (answer.code, answer.ext["queueId"], bytes(answer.body)) == (0, "3", b"answer")
    assert answer.ext["raftHop"] == "1"
    assert group.follower.forwarder.idle_seconds < 5 < group.leader.forwarder.idle_seconds
    assert answer.serialize_type == kind
    assert answer.opaque == request.opaque
    (taken,) = group.leader.taken
    assert (taken.code, taken.serialize_type, bytes(taken.body)) == (SEND, kind, b"body")
    told = {"raftHop": "1", "raftTerm": "7", "raftClientHost": f"127.0.0.1:{port}"}
    assert taken.ext.items() >= {"b": "T", "i": "TAGS\x01A\x02", "e": "1", **told}.items()


async def test_R8_the_clients_host_is_kept_as_the_born_host(group: Group) -> None:
    port = await group.own_port()
    await group.submit(send())
    assert group.leader.hosts == [host_bytes("127.0.0.1", port)]


async def test_the_leader_serves_at_once_and_all_others_what_is_theirs(group: Group) -> None:
    await group.submit(Command.request(BEAT))
    assert (len(group.follower.taken), len(group.leader.taken)) == (1, 0)
    await group.client.invoke(group.leader.address, send(), 5.0)
    assert (len(group.leader.taken), group.leader.forwarder.pending) == (1, 0)


def test_leased_requests_are_the_leaders() -> None:
    assert LEASED < LEADER_ONLY
    assert PULL not in LEADER_ONLY


async def test_R8_a_forwarded_request_is_never_forwarded_again(hurried: Group) -> None:
    # Either takes the other for the leader.
    hurried.leader.role.become(leader_address=hurried.follower.address)
    answer = await hurried.submit(send())
    # The deadline finds the last attempt either waiting for its turn or on its way.
    remark = answer.remark or ""
    assert (answer.code, "no leader took it within" in remark, "outcome unknown" in remark) in {
        (ResponseCode.SERVICE_NOT_AVAILABLE, True, False),
        (ResponseCode.SYSTEM_ERROR, False, True),
    }
    assert not hurried.leader.taken
    assert not hurried.follower.taken
    assert hurried.leader.forwarder.pending == 0


async def test_a_hop_is_refused_where_nobody_leads(group: Group) -> None:
    request = Command.request(QUERY, ext={"raftHop": "1"})
    answer = await group.submit(request)
    assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, {"raftHop": "1"})


async def test_a_refusal_by_the_gate_is_followed_by_another_attempt(group: Group) -> None:
    group.leader.role.become()
    answer = group.submit(send())
    await until(lambda: group.follower.forwarder.waiting == 1)
    assert group.follower.forwarder.pending == 1
    group.leader.role.become(leads=True)
    assert (await answer).code == 0
    assert len(group.leader.taken) == 1


async def test_a_leader_of_an_older_term_refuses(group: Group) -> None:
    group.leader.role.term = 6
    answer = group.submit(send())
    await asyncio.sleep(0.03)
    assert not group.leader.taken
    group.leader.role.term = 7
    assert (await answer).code == 0


async def test_fields_of_a_hop_that_make_no_sense(group: Group) -> None:
    for bad in ({"raftTerm": "x"}, {"raftClientHost": "nobody"}):
        request = send()
        request.raw_ext = {**request.ext, "raftHop": "1", **bad}
        request.flag |= HOP_FLAG
        answer = await group.client.invoke(group.leader.address, request, 5.0)
        assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not group.leader.taken


async def test_it_waits_for_a_leader_and_is_woken_by_the_change(group: Group) -> None:
    group.follower.role.become()
    answers = [group.submit(send(b"%d" % number)) for number in range(3)]
    await until(lambda: group.follower.forwarder.waiting == 3)
    group.follower.role.become(leader_address=group.leader.address)
    assert [(await answer).code for answer in answers] == [0, 0, 0]
    assert [bytes(request.body) for request in group.leader.taken] == [b"0", b"1", b"2"]


async def test_what_waits_is_served_here_when_this_member_is_elected(group: Group) -> None:
    group.follower.role.become()
    answer = group.submit(send())
    await until(lambda: group.follower.forwarder.waiting == 1)
    group.follower.role.become(leads=True, term=8)
    assert (await answer).code == 0
    assert (len(group.follower.taken), len(group.leader.taken)) == (1, 0)
    assert "raftHop" not in group.follower.taken[0].ext


async def test_a_handler_that_refuses_what_waited_is_heard(group: Group) -> None:
    def refuse(_connection: Connection, _request: Command) -> Reply:
        raise CommandError(ResponseCode.NO_PERMISSION, "no")

    group.follower.answer = refuse
    group.follower.role.become()
    answer = group.submit(send())
    await until(lambda: group.follower.forwarder.waiting == 1)
    group.follower.role.become(leads=True)
    assert ((await answer).code, (await answer).remark) == (ResponseCode.NO_PERMISSION, "no")


async def test_one_deadline_covers_all_of_it(hurried: Group) -> None:
    hurried.follower.role.become()
    began = asyncio.get_running_loop().time()
    answer = await hurried.submit(send())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "not stored" in (answer.remark or "")
    # Half a second, and what a busy machine takes; without the deadline it ends after the client's 30 s.
    assert 0.45 < asyncio.get_running_loop().time() - began < 10
    assert hurried.follower.forwarder.pending == 0


async def test_a_leader_that_cannot_be_reached_yet(group: Group) -> None:
    address, port = group.leader.address, group.leader.server.port
    await group.leader.server.close()
    answer = group.submit(send())
    await until(lambda: group.follower.forwarder.waiting == 1)
    late = RemotingServer({SEND: lambda _connection, _request: Command.response(0)}, name="late")
    await late.start("127.0.0.1", port)
    try:
        assert address == f"127.0.0.1:{port}"
        assert (await answer).code == 0
    finally:
        await late.close()


class Resends(Forwarder):
    """A planted bug: an answer that stays away is taken for a refusal."""

    def _may_send_again(self, answer: Command | None) -> bool:
        return answer is None or super()._may_send_again(answer)


async def records_of_one_attempt(group: Group) -> int:
    """Count how often a leader gets a send that it takes and does not answer."""

    def die(_connection: Connection, _request: Command) -> Reply:
        if len(group.leader.taken) > 1:
            # Sent again, which is what is counted: it need not go on until the deadline.
            return Command.response(0)
        for connection in list(group.leader.server.connections):
            connection.abort()
        return None

    group.leader.answer = die
    answer = await group.submit(send())
    if len(group.leader.taken) == 1:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "outcome unknown" in (answer.remark or "")
    await asyncio.sleep(0.05)
    assert group.follower.forwarder.pending == 0
    return len(group.leader.taken)


async def test_R8_what_was_written_is_never_sent_again(group: Group) -> None:
    assert await records_of_one_attempt(group) == 1


async def test_R8_planted_a_forwarder_that_sends_again_is_caught() -> None:
    group = Group(Resends)
    try:
        await group.start()
        assert await records_of_one_attempt(group) > 1
    finally:
        await group.close()


async def test_R8_an_answer_that_stays_away_is_an_unknown_outcome(hurried: Group) -> None:
    hurried.leader.answer = lambda _connection, _request: None
    # Connected already: else a busy machine may come to the deadline with nothing written.
    await hurried.follower.client.connect(hurried.leader.address, 20.0)
    answer = await hurried.submit(send())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "outcome unknown" in (answer.remark or "")
    assert len(hurried.leader.taken) == 1


async def test_R8_a_refusal_that_is_not_the_gates_goes_back_as_it_is(group: Group) -> None:
    group.leader.answer = lambda _connection, _request: Command.response(
        ResponseCode.SERVICE_NOT_AVAILABLE, "disk full"
    )
    answer = await group.submit(send())
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "disk full")
    assert len(group.leader.taken) == 1


async def test_R8_a_send_that_was_overwritten_goes_on_once(group: Group) -> None:
    lost: list[tuple[Connection, Command]] = []
    group.follower.answer = lambda connection, request: lost.append((connection, request))
    group.follower.role.become(leads=True)
    answer = group.submit(send())
    await until(lambda: len(lost) == 1)
    group.follower.role.become(leader_address=group.leader.address)
    group.follower.forwarder.forward_lost(*lost[0])
    assert (await answer).code == 0
    assert len(group.leader.taken) == 1


async def test_R8_a_forwarded_send_that_was_overwritten_is_given_back(group: Group) -> None:
    lost: list[tuple[Connection, Command]] = []
    group.leader.answer = lambda connection, request: lost.append((connection, request))
    answer = group.submit(send())
    await until(lambda: len(lost) == 1)
    group.follower.role.become()
    group.leader.role.become()
    group.leader.forwarder.forward_lost(*lost[0])
    await until(lambda: group.follower.forwarder.waiting == 1)
    group.follower.role.become(leads=True)
    assert (await answer).code == 0
    assert len(group.follower.taken) == 1


async def test_what_is_given_back_again_and_again_ends_with_its_first_deadline(hurried: Group) -> None:
    # A transfer that does not come to an end: the member still leads, and takes nothing.
    follower = hurried.follower
    follower.role.become(leads=True)
    follower.answer = follower.forwarder.forward_lost
    began = asyncio.get_running_loop().time()
    answer = await hurried.submit(send())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    # A deadline that began anew each time would not end before the client's 30 s.
    assert asyncio.get_running_loop().time() - began < 10
    assert len(follower.taken) > 2
    assert follower.forwarder.pending == 0


async def test_one_way_requests_go_on_once(group: Group) -> None:
    await group.client.oneway(group.follower.address, send(oneway=True))
    async with asyncio.timeout(20):
        await group.leader.arrived.wait()
    assert group.leader.taken[0].is_oneway
    assert group.follower.forwarder.pending == 0


async def test_the_bounds_are_answered_with_busy() -> None:
    member = Member(
        FakeRole(), ForwardLimits(deadline_seconds=20.0, requests_max=2, bytes_max=4096, congested_requests=2)
    )
    client = RemotingClient()
    await member.start()
    try:
        assert not member.forwarder.congested
        two = [asyncio.ensure_future(client.invoke(member.address, send(), 5.0)) for _ in range(2)]
        await until(lambda: member.forwarder.pending == 2)
        assert member.forwarder.congested, "who sends much waits from then on"
        assert (await client.invoke(member.address, send(), 5.0)).code == ResponseCode.SYSTEM_BUSY
        # They stay for as long as the test wants, and are served then.
        member.role.become(leads=True)
        assert {(await answer).code for answer in two} == {0}
        member.role.become()
        assert (await client.invoke(member.address, send(b"x" * 4096), 5.0)).code == ResponseCode.SYSTEM_BUSY
        many = send()
        many.raw_ext = {**many.ext, "x": "y" * 4096}
        assert (await client.invoke(member.address, many, 5.0)).code == ResponseCode.SYSTEM_BUSY
        assert member.forwarder.pending == 0
    finally:
        await client.close()
        await member.close()


async def test_a_client_that_has_gone_is_not_spoken_for(group: Group) -> None:
    group.follower.role.become()
    # Connected first: the time given is that of the answer, not of a connection a busy machine is slow to make.
    await group.own_port()
    answer = group.submit(send(), 0.05)
    await until(lambda: group.follower.forwarder.waiting == 1)
    with pytest.raises(InvokeTimeout):
        await answer
    (connection,) = group.follower.server.connections
    connection.abort()
    await until(lambda: not group.follower.server.connections)
    group.follower.role.become(leader_address=group.leader.address)
    await until(lambda: group.follower.forwarder.pending == 0)
    assert not group.leader.taken


async def test_R7_a_leader_without_a_lease_answers_no_positions(group: Group) -> None:
    group.leader.role.leased = False
    answer = asyncio.ensure_future(group.client.invoke(group.leader.address, Command.request(QUERY), 5.0))
    await until(lambda: group.leader.forwarder.waiting == 1)
    assert (await group.client.invoke(group.leader.address, send(), 5.0)).code == 0
    group.leader.role.leased = True
    assert (await answer).code == 0


async def test_a_pull_that_fails_has_its_own_answer(group: Group, hurried: Group) -> None:
    # What is to succeed has all the time it needs.
    assert (await group.submit(Command.request(PULL))).code == 0
    hurried.leader.answer = lambda _connection, _request: None
    assert (await hurried.submit(Command.request(PULL))).code == ResponseCode.PULL_NOT_FOUND
    hurried.follower.role.become()
    assert (await hurried.submit(Command.request(PULL))).code == ResponseCode.PULL_NOT_FOUND
    hop = Command.request(PULL, ext={"raftHop": "1"})
    assert (await hurried.submit(hop)).code == ResponseCode.PULL_NOT_FOUND


async def test_pulls_have_a_bound_of_their_own() -> None:
    member = Member(FakeRole(), ForwardLimits(deadline_seconds=20.0, pulls_max=1))
    client = RemotingClient()
    await member.start()
    try:
        first = asyncio.ensure_future(client.invoke(member.address, Command.request(PULL), 5.0))
        await until(lambda: member.forwarder.pending == 1)
        assert (await client.invoke(member.address, Command.request(PULL), 5.0)).code == ResponseCode.PULL_NOT_FOUND
        assert member.forwarder.pending == 1
        member.role.become(leads=True)
        assert (await first).code == 0
    finally:
        await client.close()
        await member.close()


async def test_a_stop_refuses_who_waits_and_lets_the_rest_end(group: Group) -> None:
    forwarder = group.follower.forwarder
    assert await forwarder.drain(0.0)
    held: list[tuple[Connection, Command]] = []
    group.leader.answer = lambda connection, request: held.append((connection, request))
    under_way = group.submit(send())
    await until(lambda: len(held) == 1)
    group.follower.role.become()
    waits = group.submit(send())
    await until(lambda: forwarder.waiting == 1)
    assert not await forwarder.drain(0.01)
    await forwarder.close()
    assert (await waits).code == ResponseCode.SERVICE_NOT_AVAILABLE
    held[0][0].reply(held[0][1], Command.response(0))
    assert (await under_way).code == 0
    assert await forwarder.drain(1.0)
    assert (await group.submit(send())).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_the_client_does_not_wait_long_for_a_member_that_comes_back() -> None:
    assert CLIENT_LIMITS.backoff_max_seconds < ForwardLimits().deadline_seconds / 10


async def test_what_decides_nothing_about_a_transaction_is_not_passed_on(group: Group) -> None:
    """The leader would never answer it, and the client would be told that the outcome is unknown."""
    client = cast(Connection, None)
    for how in ("0", "4", ""):
        request = Command.request(RequestCode.END_TRANSACTION, ext={"commitOrRollback": how})
        group.follower.forwarder.forward(client, request)
    assert group.follower.forwarder.pending == 0
