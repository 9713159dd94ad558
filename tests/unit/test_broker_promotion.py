"""promotion.py and prospects.py: who may become the master, and what is said before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.master_slave import promotion, prospects
from broker.settings import decision as override
from broker.settings.pair_memory import PairMemory, save_memory
from remoting.codes import ClassicCode, ResponseCode
from remoting.errors import CommandError
from tests.parts.decisions import LOCKS, MASTER, NAMESRV, OTHER, OWN, THIRD, Setting


async def test_a_slave_whose_master_is_gone_becomes_the_master(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    done = await setting.ask(ClassicCode.PROMOTE)
    assert (done["done"], done["role"], done["epoch"], done["refused"]) == (True, "ASYNC_MASTER", 4, None)
    assert (done["end"], done["master"], done["masterEnd"], done["heardMsAgo"]) == (4096, MASTER, 5000, 2500)
    assert done["behind"] == 904
    assert "904 bytes that the master has are not here, and are lost to consumers" in done["words"]
    decided = setting.decided()
    assert (decided.keys, decided.epoch) == ({"brokerRole": "ASYNC_MASTER", "brokerId": "0"}, 4)
    assert "promote" in (await setting.restarted()).why
    assert override.load(setting.texts)[0].brokerRole == "ASYNC_MASTER"
    assert setting.locks.taken == [b""], "what the dead one granted is not known"


async def test_asking_alone_does_nothing(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3, "max": 6000}
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert (told["done"], told["masterEnd"], told["heardMsAgo"]) == (False, 6000, 0)
    assert f"the master at {MASTER} lives" in told["refused"]
    await asyncio.sleep(promotion.RESTART_PAUSE_SECONDS)
    assert setting.restarts == []
    assert override.read(tmp_path) is None


@pytest.mark.parametrize("how", ["it answers", "a RocketMQ master answers", "it pushes", "another was promoted"])
async def test_promote_is_refused_while_a_master_lives_unless_forced(tmp_path: Path, how: str) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    alive = MASTER
    if how == "it answers":
        setting.net.states[MASTER] = {"role": "SYNC_MASTER", "epoch": 7}
    elif how == "a RocketMQ master answers":
        setting.net.states[MASTER] = {}
    elif how == "it pushes":
        setting.slave.state["state"] = "following"
    else:
        alive = "10.0.0.3:10911"
        setting.net.members[NAMESRV] = {0: alive, 1: OWN}
        setting.net.states[alive] = {"role": "ASYNC_MASTER", "epoch": 9}
    with pytest.raises(CommandError, match=rf"not promoted: the master at {alive} lives; stop it first") as refusal:
        await setting.ask(ClassicCode.PROMOTE)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert override.read(tmp_path) is None

    done = await setting.ask(ClassicCode.PROMOTE, force=True)
    assert any("takes nothing more, and hands on what it has" in word for word in done["words"])
    assert "although its master was alive" in setting.decided().why
    # From one that cannot be reached nothing comes; and of two nobody knows who granted last.
    assert setting.locks.taken == [LOCKS if how.endswith("answers") else b""]
    assert setting.decided().epoch == {"it answers": 8, "another was promoted": 10}.get(how, 4)


@pytest.mark.parametrize("now", [{"role": "SLAVE"}, {"role": "ASYNC_MASTER", "fenced": "10.0.0.3 was promoted"}])
async def test_a_master_that_is_none_any_more_does_not_stand_in_the_way(tmp_path: Path, now: dict[str, Any]) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.states[MASTER] = {**now, "epoch": 5}
    assert (await setting.ask(ClassicCode.PROMOTE))["epoch"] == 6


async def test_what_a_sync_master_acknowledged_is_told(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    setting.slave.state["role"] = "SYNC_MASTER"
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert told["role"] == "SYNC_MASTER"
    assert any("acknowledged with SEND_OK is on a slave" in word for word in told["words"])
    assert any("answers 11" in word for word in told["words"])
    told = await setting.ask(ClassicCode.PROMOTE, ask=True, role="ASYNC_MASTER")
    assert told["role"] == "ASYNC_MASTER"
    assert not any("answers 11" in word for word in told["words"])


async def test_a_slave_that_was_started_after_its_master_died_remembers_it(tmp_path: Path) -> None:
    save_memory(tmp_path, PairMemory(open=True, epoch=6, master=MASTER))
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    setting.slave.state = {"state": "no master known"}
    setting.net.states[MASTER] = {"role": "SYNC_MASTER"}
    with pytest.raises(CommandError, match=MASTER):
        await setting.ask(ClassicCode.PROMOTE)
    setting.net.states.clear()
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert (told["master"], told["role"], told["epoch"], told["masterEnd"]) == (MASTER, "SYNC_MASTER", 7, None)
    assert "how far the master's goes is not known" in told["words"][0]


def test_the_log_of_a_master_ended_at_least_where_the_own_one_does() -> None:
    state = {"state": "following", "address": MASTER, "max": 100, "seenAt": 50, "lastFrameAt": 70}
    known = prospects.known_master(state, PairMemory(), 400, 90)
    assert (known.end, known.heard_ms_ago, known.connected) == (400, 20, True)
    known = prospects.known_master(state, PairMemory(), 60, 90)
    assert (known.end, known.heard_ms_ago) == (100, 40)


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (ClassicCode.PROMOTE, b"{", "no JSON"),
        (ClassicCode.PROMOTE, b"[]", "JSON object"),
        (ClassicCode.PROMOTE, b"{" + b" " * promotion.BODY_BYTES_MAX + b"}", "at most"),
        (ClassicCode.PROMOTE, b'{"role": "SLAVE"}', "it takes ASYNC_MASTER or SYNC_MASTER"),
        (ClassicCode.PROMOTE, b'{"role": 1}', "'role' must be a text"),
        (ClassicCode.PROMOTE, b'{"force": "yes"}', "'force' must be true or false"),
        (ClassicCode.FOLLOW, b'{"brokerId": -1}', "it takes 1 to"),
        (ClassicCode.FOLLOW, b'{"brokerId": true}', "it takes 1 to"),
    ],
)
async def test_bad_requests_cost_one_clear_error(tmp_path: Path, code: ClassicCode, body: bytes, words: str) -> None:
    setting = Setting(tmp_path, slave=True)
    with pytest.raises(CommandError, match=words) as error:
        await setting.ask(code, body)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert override.read(tmp_path) is None


async def test_only_one_decision_is_carried_out(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    await setting.ask(ClassicCode.PROMOTE)
    with pytest.raises(CommandError, match="another decision"):
        await setting.ask(ClassicCode.PROMOTE)
    await setting.restarted()


async def test_a_decision_that_cannot_be_kept_is_not_carried_out(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    (tmp_path / "config").write_text("in the way")
    with pytest.raises((CommandError, OSError)):
        await setting.ask(ClassicCode.PROMOTE)
    assert setting.restarts == []


async def test_who_leads_is_not_promoted_and_follows_nobody(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    for code, words in (
        (ClassicCode.PROMOTE, "is the master already"),
        (ClassicCode.FOLLOW, "nobody was promoted in its place"),
        (ClassicCode.ACCEPT_MASTER, "is no slave"),
    ):
        with pytest.raises(CommandError, match=words):
            await setting.ask(code)
    # Taking nothing for a while, for another reason, makes it no deposed master.
    setting.role.fence("it becomes a Raft group")
    with pytest.raises(CommandError, match="nobody was promoted in its place"):
        await setting.ask(ClassicCode.FOLLOW)


async def test_a_deposed_master_follows_with_the_lowest_free_id(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    setting.depose()
    setting.net.members[NAMESRV] = {0: "10.0.0.3:10911", 1: "10.0.0.4:10911", 3: "10.0.0.5:10911"}
    with pytest.raises(CommandError, match=r"brokerId 3 is another broker's: taken are 0, 1, 3"):
        await setting.ask(ClassicCode.FOLLOW, brokerId=3)
    assert (await setting.ask(ClassicCode.FOLLOW))["brokerId"] == 2
    assert setting.decided().keys == {"brokerRole": "SLAVE", "brokerId": "2"}
    assert "follow" in (await setting.restarted()).why


async def test_without_a_name_server_the_id_must_be_said(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    setting.depose()
    with pytest.raises(CommandError, match="name one with --id"):
        await setting.ask(ClassicCode.FOLLOW)
    assert (await setting.ask(ClassicCode.FOLLOW, brokerId=4))["brokerId"] == 4
    await setting.restarted()


async def test_a_slave_that_waits_for_a_person_goes_on(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    with pytest.raises(CommandError, match="waits for no decision"):
        await setting.ask(ClassicCode.ACCEPT_MASTER)
    setting.slave.waits = True
    assert await setting.ask(ClassicCode.ACCEPT_MASTER) == {"lost": 1000, "why": "the logs differ from 4000 on"}


# ---- the other slaves


async def test_R16_a_slave_that_is_shorter_than_another_is_promoted_by_force_only(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.members[NAMESRV] = {1: OWN, 2: OTHER, 3: THIRD}
    setting.net.states[OTHER] = {"role": "SLAVE", "broker": "b", "max": 4296}
    setting.net.states[THIRD] = {"role": "SLAVE", "broker": "b", "max": 4096}
    with pytest.raises(CommandError, match=rf"slave 2 at {OTHER} has 200 bytes more than this one: promote that one"):
        await setting.ask(ClassicCode.PROMOTE)
    assert override.read(tmp_path) is None
    done = await setting.ask(ClassicCode.PROMOTE, force=True)
    assert f"slave 2 at {OTHER} has 200 bytes more, which are lost" in done["words"]
    assert "although another slave had more" in setting.decided().why
    await setting.restarted()


async def test_slaves_that_are_absent_are_named(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    # One is registered and does not answer; another the NameServer remembers; the master is no slave of any.
    setting.net.members[NAMESRV] = {1: OWN, 2: OTHER}
    setting.net.remembered[NAMESRV] = {"epoch": 0, "holder": "", "members": {"3": THIRD, "4": MASTER, "1": OWN}}
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert [word for word in told["words"] if "does not tell" in word] == [
        f"slave 2 at {OTHER} does not tell how far it is: what only that slave has is lost",
        f"slave 3 at {THIRD} does not tell how far it is: what only that slave has is lost",
    ]
    assert told["refused"] is None


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (None, None),
        ({}, None),
        ({"role": "SLAVE"}, None),
        ({"role": "SLAVE", "max": "7"}, None),
        ({"role": "SLAVE", "max": True}, None),
        ({"role": "SLAVE", "max": 7, "broker": "another"}, None),
        ({"role": "ASYNC_MASTER", "max": 7}, None),
        ({"role": "SLAVE", "max": 7}, 7),
    ],
)
def test_how_far_a_slave_is_only_a_slave_of_the_name_tells(state: dict[str, Any] | None, end: int | None) -> None:
    assert prospects.slave_end(state, "b") == end
