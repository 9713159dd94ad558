"""broker/admin/missing.py: what clients ask for in vain is named once for each, counted always, and bounded."""

import logging
from typing import cast

import pytest

import broker.admin.missing
from broker.admin.missing import LINES_PER_MINUTE, MissingFeatures
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.server import Connection
from runtime.clock import ManualClock


class Client:
    """A connection."""

    def __init__(self, host: str, port: int = 40_000, client_id: str | None = None) -> None:
        self.peer = (host, port)
        self.address = f"{host}:{port}"
        self.client_id = client_id


class Setting:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.missing = MissingFeatures(self.clock, lambda connection: cast("Client", connection).client_id)

    def ask(self, client: Client, code: int, kind: int = JSON) -> None:
        self.missing.asked(cast("Connection", client), Command(code=code, serialize_type=kind))

    def counts(self) -> dict[tuple[str, str], float]:
        return dict(self.missing.counts())


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_client_is_named_once_for_each_code_and_counted_always(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Client("10.0.0.1", client_id="10.0.0.1@1"), Client("10.0.0.1", 40_001, "10.0.0.1@2")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            setting.ask(one, RequestCode.SEND_REPLY_MESSAGE_V2)
        setting.ask(two, RequestCode.SEND_REPLY_MESSAGE_V2)
        setting.ask(one, 513)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"client {client} asks for {what}, which this broker does not serve: it is answered with code 3"
        for client, what in (
            ("10.0.0.1@1 at 10.0.0.1:40000", "request-reply (code 325)"),
            ("10.0.0.1@2 at 10.0.0.1:40001", "request-reply (code 325)"),
            ("10.0.0.1@1 at 10.0.0.1:40000", "static topics (code 513)"),
        )
    ]
    assert setting.counts() == {("request-reply", "325"): 4, ("static topics", "513"): 1}


def test_a_client_that_comes_back_without_a_heartbeat_is_known_by_its_host(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    for port in range(3):
        setting.ask(Client("10.0.0.1", port), 200_050)
    assert len(caplog.records) == 1
    assert setting.counts() == {("POP", "200050"): 3}


def test_what_nobody_knows_has_one_name(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    for code in range(50_000, 51_000):
        setting.ask(Client("10.0.0.1"), code)
    assert len(caplog.records) == 1
    assert setting.counts() == {("other", "other"): 1000}


def test_a_code_that_the_binary_header_cut_short_is_known(setting: Setting) -> None:
    setting.ask(Client("10.0.0.1"), 200_050 & 0xFFFF, ROCKETMQ)
    setting.ask(Client("10.0.0.1"), 200_050 & 0xFFFF)
    assert setting.counts() == {("POP", "200050"): 1, ("other", "other"): 1}


def test_a_flood_of_clients_costs_a_few_lines_and_little_memory(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.admin.missing, "TOLD_MAX", 10)
    for number in range(1000):
        setting.ask(Client("10.0.0.1", client_id=f"client-{number}"), 325)
    assert len(caplog.records) == LINES_PER_MINUTE
    assert len(setting.missing._told) == 10
    assert setting.counts() == {("request-reply", "325"): 1000}
    setting.clock.advance(60)
    setting.ask(Client("10.0.0.1", client_id="later"), 325)
    assert len(caplog.records) == LINES_PER_MINUTE + 1
