"""What workloads ask of a cluster, against a broker that answers as it is told."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos.host.processes import broker_process
from chaos.load.clients import REFUSED, Clients, Leaders, LoadClient, connections
from chaos.load.recorder import Recorder, compact
from chaos.load.workload import BATCH, BATCHED_EVERY, Load, Names, Pace, keep_sending, start_senders
from chaos.runs.closing import keep_earlier
from chaos.site.site import SiteMember
from client.api import PullAnswer, PullStatus
from pipeline.history.body import Tag
from pipeline.history.folder import EARLIER, RunFolder
from pipeline.history.rows import UNKNOWN, Act, Kind, Op
from remoting.bodies.registry import MessageQueue
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from remoting.errors import ResponseError

ADDRESS = "127.0.0.1:10911"


@dataclass
class Brokers:
    """In place of a client's BrokerApi: grants locks, answers polls, and says who leads."""

    holders: dict[int, str] = field(default_factory=dict)
    terms: list[int] = field(default_factory=list)
    error: Exception | None = None

    async def lock(self, _address: str, _group: str, name: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        if self.error is not None:
            raise self.error
        return [queue for queue in queues if self.holders.setdefault(queue.queueId, name) == name]

    async def unlock(self, _address: str, _group: str, name: str, queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            if self.holders.get(queue.queueId) == name:
                del self.holders[queue.queueId]

    async def pull(self, _address: str, _request: object) -> PullAnswer:
        return PullAnswer(PullStatus.NO_NEW, [], 7, 0, 7, 0)

    async def leads(self, _address: str) -> int:
        return self.terms.pop(0)


@pytest.fixture
async def remoting() -> AsyncIterator[RemotingClient]:
    made = connections("test")
    yield made
    await made.close()


def client_of(recorder: Recorder, remoting: RemotingClient, brokers: Brokers, name: str) -> LoadClient:
    made = LoadClient(recorder, remoting, "127.0.0.1:1", name)
    made.api = brokers  # type: ignore[assignment] # what these tests ask of it
    return made


async def test_a_lock_is_granted_refused_or_open(tmp_path: Path, remoting: RemotingClient) -> None:
    recorder, brokers = Recorder(tmp_path), Brokers()
    one, other = (client_of(recorder, remoting, brokers, name) for name in ("one", "other"))
    place = (ADDRESS, "G", "T", 3)
    assert (await one.lock(*place)).kind == Kind.OK
    assert (await one.lock(*place)).kind == Kind.OK
    refused = await other.lock(*place)
    assert (refused.kind, refused.error) == (Kind.FAIL, REFUSED)
    assert (await one.unlock(*place)).kind == Kind.OK
    assert (await other.lock(*place)).kind == Kind.OK
    brokers.error = ResponseError(ResponseCode.SYSTEM_BUSY, "", ADDRESS)
    assert (await one.lock(*place)).error != REFUSED
    brokers.error = ResponseError(ResponseCode.SYSTEM_ERROR, "", ADDRESS)
    assert (await one.lock(*place)).kind == Kind.INFO
    recorder.close()
    compact(tmp_path)
    acts = [(op.act, op.group, op.queue, op.kind) for op in RunFolder(tmp_path).ops()]
    assert acts[2:4] == [(Act.LOCK, "G", 3, Kind.FAIL), (Act.UNLOCK, "G", 3, Kind.OK)]


@pytest.mark.parametrize(
    ("terms", "leader"),
    [([4, 4], ADDRESS), ([4, 5], ""), ([4, UNKNOWN], ""), ([UNKNOWN], "")],
    ids=["led all the time", "another term", "deposed", "no leader"],
)
async def test_a_poll_is_a_leaders_if_it_led_before_and_after(
    tmp_path: Path, remoting: RemotingClient, terms: list[int], leader: str
) -> None:
    recorder, brokers = Recorder(tmp_path), Brokers(terms=terms)
    client = client_of(recorder, remoting, brokers, "one")
    done = await client.poll(ADDRESS, "G", "T", 0, 7, leads=brokers.leads)
    recorder.close()
    assert (done.leader, done.end, brokers.terms) == (leader, 7, [])


def test_clients_turn_to_who_leads_by_the_route_and_away_from_who_fails() -> None:
    leaders = Leaders(["a:1", "b:2", "c:3"])
    leaders.routed("c:3")
    assert leaders.address == "c:3"
    leaders.failed("b:2")
    assert leaders.address == "c:3", "that one was left long ago"
    leaders.failed("c:3")
    assert leaders.address == "a:1"
    leaders.routed("d:4")
    assert leaders.address == "a:1", "nobody knows that one"


class Sender:
    """In place of a client: notes what is sent, and ends it as it is told."""

    def __init__(self, ends: Sequence[Kind], stop: asyncio.Event) -> None:
        self._ends = list(ends)
        self._stop = stop
        self.sent: list[list[Tag]] = []

    async def send(self, *args: Any) -> Op:
        return self._end([args[3]])

    async def send_batch(self, *args: Any) -> list[Op]:
        return [self._end(args[3])] * len(args[3])

    def _end(self, tags: Sequence[Tag]) -> Op:
        self.sent.append(list(tags))
        kind = self._ends.pop(0)
        if not self._ends:
            self._stop.set()
        return Op(0, 0, Act.SEND, kind, 0, 0)


def load_of(recorder: Recorder, leads: Any = None) -> Load:
    return Load(
        recorder, "", [ADDRESS], Leaders([ADDRESS]), Clients(), random.Random(1), 1e6, Names(), leads or Brokers().leads
    )


@pytest.mark.parametrize("batch", [1, 4])
async def test_numbers_are_sent_in_their_order_and_failed_ones_again(tmp_path: Path, batch: int) -> None:
    recorder, stop = Recorder(tmp_path), asyncio.Event()
    sender = Sender([Kind.OK, Kind.FAIL, Kind.FAIL, Kind.OK, Kind.OK], stop)
    await keep_sending(load_of(recorder), sender, "T", 4, Pace(1e6), stop, batch=batch)  # type: ignore[arg-type]
    recorder.close()
    writer = sender.sent[0][0].writer
    expected = [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert sender.sent == [
        [Tag(writer, batch * turn + number, attempt) for number in range(batch)] for turn, attempt in expected
    ]


async def test_some_senders_send_batches(
    tmp_path: Path, remoting: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, batches = Recorder(tmp_path), []

    async def noted(*_args: object, batch: int) -> None:
        batches.append(batch)

    monkeypatch.setattr("chaos.load.workload.keep_sending", noted)
    async with asyncio.TaskGroup() as tasks:
        start_senders(tasks, load_of(recorder), remoting, "T", 4, asyncio.Event(), count=2 * BATCHED_EVERY)
    recorder.close()
    assert (batches.count(BATCH), batches.count(1)) == (2, 2 * BATCHED_EVERY - 2)


def test_an_earlier_store_is_a_copy(tmp_path: Path) -> None:
    """The member goes on to write into its files: a copy that changes with them would be no evidence."""
    home = tmp_path / "n0"
    process = broker_process(home, namesrv="127.0.0.1:1", name="n0", settings={})
    member = SiteMember("n0", process, home, raft=True, planted="")
    assert not keep_earlier(member, tmp_path / EARLIER / "0" / "n0")
    (member.store / "commitlog").mkdir(parents=True)
    log = member.store / "commitlog" / "0"
    log.write_bytes(b"before")
    for number in (10, 9):
        assert keep_earlier(member, tmp_path / EARLIER / str(number) / "n0")
    log.write_bytes(b"behind")
    moments = RunFolder(tmp_path).earlier()
    assert [[path.parent.name for path in moment] for moment in moments] == [["9"], ["10"]]
    assert [(path / "commitlog" / "0").read_bytes() for moment in moments for path in moment] == [b"before"] * 2
