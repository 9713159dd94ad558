"""remoting/audit.py: every administrative request leaves a line that says who, from where, what, and the answer."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from remoting.admission import Admission
from remoting.audit import CHANGES, audited
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import CommandError
from remoting.limits import ServerLimits
from remoting.signing import Credentials, sign
from runtime.log import audit_to
from tests.parts.byte_peer import ECHO, echo, serving

DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


async def lines(handler: Handler, caplog: pytest.LogCaptureFixture, request: Command) -> tuple[list[str], Command]:
    """What the log says of one request, with the port that it came from left out, and the answer."""
    table = audited({int(DELETE): handler, ECHO: echo}, Admission())
    with caplog.at_level("INFO", "audit"):
        async with serving(table, ServerLimits()) as (_, peer):
            peer.send(request)
            answer = await peer.receive()
            host, port = peer.writer.get_extra_info("sockname")[:2]
    said = [record.message for record in caplog.records if record.name == "audit"]
    return [line.replace(f"{host}:{port} ", "") for line in said], answer


def asked(**fields: str) -> Command:
    return Command.request(DELETE, ext=fields, body=b"12345")


def done(_: Connection, __: Command) -> Reply:
    return Command.response(ResponseCode.SUCCESS)


def refused(_: Connection, __: Command) -> Reply:
    raise CommandError(ResponseCode.NO_PERMISSION, "not you")


def broken(_: Connection, __: Command) -> Reply:
    raise RuntimeError("no\nidea")


async def later(_: Connection, __: Command) -> Command:
    await asyncio.sleep(0)
    return Command.response(ResponseCode.TOPIC_NOT_EXIST, "no topic")


async def later_refused(_: Connection, __: Command) -> Command:
    await asyncio.sleep(0)
    raise CommandError(ResponseCode.SYSTEM_ERROR, "lost the lead")


def elsewhere(connection: Connection, request: Command) -> Reply:
    connection.reply(request, Command.response(ResponseCode.SUCCESS))
    return None


@pytest.mark.parametrize(
    ("handler", "outcome", "code"),
    [
        (done, "done", 0),
        (refused, "refused with 16 (not you)", 16),
        (broken, r"failed, RuntimeError (no\nidea)", 1),
        (later, "refused with 17 (no topic)", 17),
        (later_refused, "refused with 1 (lost the lead)", 1),
        (elsewhere, "passed on", 0),
    ],
)
async def test_a_line_tells_what_was_asked_and_what_became_of_it(
    caplog: pytest.LogCaptureFixture, handler: Handler, outcome: str, code: int
) -> None:
    said, answer = await lines(handler, caplog, asked(topic="T"))
    assert said == [f"asked for DELETE_TOPIC_IN_BROKER topic=T and a body of 5 bytes: {outcome}"]
    assert answer.code == code


async def test_what_a_stranger_writes_stays_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    said, _ = await lines(done, caplog, asked(topic="a\nb\x1b[2J" + "x" * 2000))
    (line,) = said
    assert line.isprintable()
    assert len(line) < 600


async def test_a_line_names_the_user_and_shows_no_signature(caplog: pytest.LogCaptureFixture) -> None:
    signed = asked(topic="T", SecurityToken="hunter22")
    sign(signed, Credentials("alice", "alice-secret-1"))
    said, _ = await lines(done, caplog, signed)
    assert said == ["as alice asked for DELETE_TOPIC_IN_BROKER topic=T and a body of 5 bytes: done"]


async def test_lines_of_json_go_to_a_file_of_their_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    audit_to(path)
    handler = logging.getLogger("audit").handlers[-1]
    try:
        await lines(refused, caplog, asked(topic="T\n"))
        with caplog.at_level("INFO", "audit"):
            logging.getLogger("audit").info("%d more", 3)
    finally:
        logging.getLogger("audit").removeHandler(handler)
        handler.close()
    line, note = map(json.loads, path.read_text().splitlines())
    assert line["asked"] == "DELETE_TOPIC_IN_BROKER"
    assert (line["code"], line["outcome"], line["user"]) == ("16", "refused with 16 (not you)", "")
    assert line["at"].endswith("Z")
    assert note["note"] == "3 more"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_rolls_over_within_bounds_and_each_is_its_owners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_max, kept, count = 1000, 3, 100
    monkeypatch.setattr("runtime.log.FILE_BYTES_MAX", bytes_max)
    monkeypatch.setattr("runtime.log.FILES_KEPT", kept)
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    audit_to(path)
    assert path.stat().st_mode & 0o777 == 0o600
    log = logging.getLogger("audit")
    handler = log.handlers[-1]
    before = os.umask(0)
    try:
        with caplog.at_level("INFO", "audit"):
            for number in range(count):
                log.info("line %d", number)
    finally:
        os.umask(before)
        log.removeHandler(handler)
        handler.close()
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, kept + 1))]
    assert sorted(tmp_path.iterdir()) == files
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert max(file.stat().st_size for file in files) <= bytes_max
    said = [json.loads(line)["note"] for file in reversed(files) for line in file.read_text().splitlines()]
    assert said == [f"line {number}" for number in range(count - len(said), count)], "the last ones, none is missing"
    assert len(said) > 2 * kept


async def test_what_changes_nothing_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    said, _ = await lines(done, caplog, Command.request(ECHO))
    assert said == []


def test_clients_daily_requests_are_not_audited() -> None:
    daily = {10, 11, 14, 15, 34, 35, 36, 38, 41, 42, 103, 104, 105, 310, 320, 361, 9111, 9113, 9120}
    assert daily & CHANGES.keys() == set()
    assert {17, 18, 25, 100, 102, 200, 205, 207, 215, 216, 222, 318, 9102, 9114, 9122} <= CHANGES.keys()
