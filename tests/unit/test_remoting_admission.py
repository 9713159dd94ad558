"""remoting/admission.py: from which addresses administrative requests are taken, and how a person says so."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from broker.settings.config import load_broker_config
from namesrv.config import load_namesrv_config
from remoting.admission import Admission, AskingPeer, http_judge
from remoting.audit import ADMINISTRATIVE, CHANGES, STRANGER_LINES_MAX, STRANGERS_LINES_MAX, audited
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Reply
from runtime.config import ConfigError
from runtime.quiet import EVERY_S


@pytest.mark.parametrize(
    ("allowed", "guarded", "host", "own", "taken"),
    [
        # Without access control as long as nothing is said: everybody.
        ("", False, "10.0.0.5", "10.0.0.1", True),
        ("", False, "fd00::17", "fd00::1", True),
        ("", True, "10.0.0.5", "10.0.0.1", False),
        ("", True, "127.0.0.1", "127.0.0.1", True),
        ("", True, "::1", "::1", True),
        ("", True, "10.0.0.1", "::ffff:10.0.0.1", True),
        ("", True, "", "", False),
        ("10.0.0.5,192.168.0.0/16", False, "192.168.3.4", "10.0.0.1", True),
        ("10.0.0.5,192.168.0.0/16", False, "10.0.0.6", "10.0.0.1", False),
        ("10.0.0.5", True, "::ffff:10.0.0.5", "10.0.0.1", True),
        # The machine itself always may: its health checks.
        ("10.0.0.5", True, "127.0.0.1", "127.0.0.1", True),
        ("*", True, "fd00::17", "fd00::1", True),
    ],
)
def test_whom_http_answers(allowed: str, *, guarded: bool, host: str, own: str, taken: bool) -> None:
    why = http_judge(allowed, guarded=guarded)(host, own)
    assert (why is None) is taken
    assert why is None or f"{host} may not ask here: httpAllowFrom" in why


def test_what_http_allow_from_does_not_take() -> None:
    for load in (load_broker_config, load_namesrv_config):
        with pytest.raises(ConfigError, match=r"httpAllowFrom=10\.0\.0\.0/33: it takes addresses and networks"):
            load({"httpAllowFrom": "10.0.0.0/33"})


def caller(peer: str, own: str = "127.0.0.1") -> AskingPeer:
    return cast(AskingPeer, SimpleNamespace(peer=(peer, 40000), own_host=own))


@pytest.mark.parametrize(
    ("allowed", "peer", "own", "taken"),
    [
        ("", "127.0.0.1", "127.0.0.1", True),
        ("", "127.8.9.1", "127.0.0.1", True),
        ("", "::1", "::1", True),
        ("", "::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("", "10.0.0.5", "10.0.0.1", False),
        # This machine, by the address that it tells others.
        ("", "10.0.0.1", "10.0.0.1", True),
        ("", "10.0.0.1", "::ffff:10.0.0.1", True),
        ("", "", "", False),
        ("", "0.0.0.0", "10.0.0.1", False),
        ("127.0.0.1", "127.0.0.2", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", True),
        ("10.0.0.5", "127.0.0.1", "127.0.0.1", False),
        ("10.0.0.5, 192.168.0.0/16", "192.168.3.4", "10.0.0.1", True),
        ("10.0.0.5,192.168.0.0/16", "::ffff:10.0.0.5", "10.0.0.1", True),
        ("10.0.0.5,192.168.0.0/16", "10.0.0.6", "10.0.0.1", False),
        ("::ffff:10.0.0.0/120", "10.0.0.6", "10.0.0.1", True),
        ("::ffff:10.0.0.0/120", "10.0.1.6", "10.0.0.1", False),
        ("fd00::/8", "fd00::17", "fd00::1", True),
        ("fe80::/10", "fe80::17%eth0", "fe80::1%eth0", True),
        ("fd00::/8", "10.0.0.6", "10.0.0.1", False),
        ("0.0.0.0/0", "fd00::17", "fd00::1", False),
        ("0.0.0.0/0,::/0", "fd00::17", "fd00::1", True),
        ("0.0.0.0/0,::/0", "10.0.0.5", "10.0.0.1", True),
        ("*", "fd00::17", "fd00::1", True),
        ("*", "10.0.0.5", "10.0.0.1", True),
    ],
)
def test_whose_requests_are_taken(allowed: str, peer: str, own: str, taken: bool) -> None:
    why = Admission(allowed).refusal(caller(peer, own))
    assert (why is None) is taken
    if why is not None:
        assert why.startswith(f"{peer} may change nothing here: adminAllowFrom of this server names")


def test_members_of_the_group_always_count() -> None:
    members = {"n0.example", "10.0.0.7"}
    admission = Admission("192.0.2.1", lambda: members)
    assert admission.refusal(caller("10.0.0.7")) is None
    assert admission.refusal(caller("::ffff:10.0.0.7")) is None
    assert admission.refusal(caller("10.0.0.8")) is not None
    members.add("10.0.0.8")
    assert admission.refusal(caller("10.0.0.8")) is None


@pytest.mark.parametrize(
    "text",
    ["10.0.0.5/8", "10.0.0.256", "localhost", "10.0.0.5;10.0.0.6", "10.0.0.5,", ",", "**", "10.0.0.0/33", "any", "-"],
)
def test_a_bad_value_refuses_the_start_with_one_sentence(text: str) -> None:
    for load in (load_broker_config, load_namesrv_config):
        with pytest.raises(ConfigError, match=r"adminAllowFrom=.*: it takes addresses and networks") as refused:
            load({"adminAllowFrom": text})
        assert str(refused.value).startswith(f"adminAllowFrom={text}: ")
        assert str(refused.value).isprintable()


def test_what_servers_ask_of_one_another_is_audited_and_refused_to_nobody() -> None:
    assert CHANGES.keys() - ADMINISTRATIVE == {217, 9119}
    assert {17, 18, 25, 100, 102, 200, 205, 207, 215, 216, 222, 318, 9102, 9114, 9122} <= ADMINISTRATIVE


def _done(_connection: Connection, _request: Command) -> Reply:
    return Command.response(ResponseCode.SUCCESS)


async def test_a_stranger_who_repeats_himself_costs_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now = asyncio.get_running_loop(), 100.0
    monkeypatch.setattr(loop, "time", lambda: now)
    table = audited(dict.fromkeys(map(int, ADMINISTRATIVE), _done), Admission("192.0.2.1"))

    def ask(peer: str, code: int) -> int:
        fields = {"peer": (peer, 1), "own_host": "10.0.0.1", "loop": loop, "address": f"{peer}:1"}
        answer = table[code](cast(Connection, SimpleNamespace(**fields)), Command.request(code, ext={"topic": "T"}))
        assert isinstance(answer, Command)
        return answer.code

    with caplog.at_level("INFO", "audit"):
        for _ in range(20):
            assert ask("10.0.0.5", RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.NO_PERMISSION
        (line,) = caplog.messages
        assert line.startswith("10.0.0.5:1 asked for DELETE_TOPIC_IN_BROKER topic=T: refused with 16 (10.0.0.5 may")
        # His other codes are worth a line each, up to a bound; so are other addresses, whatever he did.
        codes = sorted(ADMINISTRATIVE - {RequestCode.DELETE_TOPIC_IN_BROKER})
        for code in codes:
            ask("10.0.0.5", code)
        assert len(caplog.messages) == STRANGER_LINES_MAX
        for number in range(2 * STRANGERS_LINES_MAX):
            ask(f"10.1.{number >> 8}.{number & 255}", RequestCode.UPDATE_BROKER_CONFIG)
        assert len(caplog.messages) == STRANGERS_LINES_MAX
        now += EVERY_S
        ask("10.0.0.5", RequestCode.DELETE_TOPIC_IN_BROKER)
        own = 19 + len(codes) - (STRANGER_LINES_MAX - 1)
        others = 2 * STRANGERS_LINES_MAX - (STRANGERS_LINES_MAX - STRANGER_LINES_MAX)
        told = f"{own + others} more requests were refused since the last such lines"
        assert caplog.messages[-2:] == [f"{told}: {others} of other addresses, {own} of 10.0.0.5", line]
        # Whoever may is told of each time.
        assert ask("192.0.2.1", RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.SUCCESS
        assert ask("192.0.2.1", RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.SUCCESS
        assert [message.endswith("T: done") for message in caplog.messages[-2:]] == [True, True]
