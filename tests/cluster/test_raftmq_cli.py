"""The daily commands against a real NameServer and broker: what they do, what they print, how they fail."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from chaos.host.local import LocalCluster
from raftmq.cli.main import app
from remoting.compiled.door import describe
from runtime.version import RELEASE
from tests.cluster.process_group import until

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Terminal:
    """Types commands and reads what they print."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.address = cluster.address
        self._environment = {"NAMESRV_ADDR": cluster.address, "TERM": "dumb"}

    def text(self, *arguments: str, typed: str | None = None) -> str:
        """Output of a command that must succeed, with every run of blanks as one."""
        done = CliRunner().invoke(app, arguments, input=typed, env=self._environment)
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        return re.sub(r"[ ]+", " ", done.stdout)

    def json(self, *arguments: str, typed: str | None = None) -> Any:
        return json.loads(self.text(*arguments, "--json", typed=typed))

    def lines(self, *arguments: str, typed: str | None = None) -> list[Any]:
        return [json.loads(line) for line in self.text(*arguments, "--json", typed=typed).splitlines()]

    def routed(self, topic: str) -> None:
        """Wait until the NameServer knows a topic that a send has made: it is told of it a moment later."""
        typed = ["topic", "route", topic]
        until(f"a route of {topic}", lambda: CliRunner().invoke(app, typed, env=self._environment).exit_code == 0)

    def done(self, *arguments: str, code: int = 0) -> Result:
        """A command that ends so, with all that it printed."""
        done = CliRunner().invoke(app, arguments, env=self._environment)
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done

    def error(self, *arguments: str, code: int = 1) -> str:
        """The one line of a command that must fail."""
        done = self.done(*arguments, code=code)
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1
        return lines[0]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with LocalCluster(tmp_path_factory.mktemp("cli")) as cluster:
        yield Terminal(cluster)


def test_send_and_look(terminal: Terminal) -> None:
    sent = terminal.lines(
        "send", "look", "hello", "--tags", "blue", "--key", "k1", "--key", "k2", "--property", "colour=sky"
    )
    assert (sent[0]["status"], sent[0]["topic"], sent[0]["broker"]) == ("SEND_OK", "look", "broker-a")
    assert len(terminal.lines("send", "look", typed="one\n\ntwo\n")) == 2
    terminal.routed("look")
    seen = terminal.lines("consume", "look", "--count", "3", "--timeout", "10")
    assert sorted(message["body"] for message in seen) == ["hello", "one", "two"]
    hello = next(message for message in seen if message["body"] == "hello")
    assert (hello["tags"], hello["keys"], hello["properties"]["colour"]) == ("blue", ["k1", "k2"], "sky")
    # Looking moves no offset: the same again, and only what the expression lets through.
    again = terminal.lines("consume", "look", "--tags", "blue", "--count", "1", "--timeout", "10")
    assert [message["body"] for message in again] == ["hello"]
    assert "broker-a:" in terminal.text("consume", "look", "--count", "1", "--timeout", "10")


def test_send_to_one_queue_keeps_the_order(terminal: Terminal) -> None:
    terminal.text("topic", "create", "ordered", "--queues", "4")
    sent = terminal.lines("send", "ordered", "--queue", "broker-a:2", typed="a\nb\nc\n")
    assert [(message["queue"], message["offset"]) for message in sent] == [(2, 0), (2, 1), (2, 2)]
    assert terminal.json("message", "view", "ordered", "broker-a:2", "1")["body"] == "b"
    assert "broker-a:3" in terminal.error("send", "ordered", "x", "--queue", "three", code=2)


def test_groups_consume_once_and_only_what_was_printed(terminal: Terminal) -> None:
    terminal.text("topic", "create", "shared", "--queues", "1")
    terminal.text("send", "shared", typed="".join(f"m{number}\n" for number in range(6)))
    first = terminal.lines("consume", "shared", "-g", "readers", "--count", "2", "--timeout", "20")
    second = terminal.lines("consume", "shared", "-g", "readers", "--count", "4", "--timeout", "20")
    assert [message["body"] for message in first] == ["m0", "m1"]
    assert [message["body"] for message in second] == ["m2", "m3", "m4", "m5"]
    progress = terminal.json("group", "progress", "readers")
    assert (progress["lag"], progress["queues"][0]["consumer_offset"]) == (0, 6)
    assert "readers" in {row["group"] for row in terminal.json("group", "list")}

    row = {"broker": "broker-a", "queue": 0, "before": 6, "offset": 0, "messages": -6}
    assert terminal.json("group", "reset-offset", "readers", "shared", "--to", "begin", "--dry-run") == [row]
    assert terminal.json("group", "progress", "readers")["lag"] == 0
    assert terminal.json("group", "reset-offset", "readers", "shared", "--to", "begin") == [row]
    assert terminal.json("group", "progress", "readers")["lag"] == 6
    terminal.text("group", "reset-offset", "readers", "shared", "--to", "end")
    assert "lag 0" in terminal.text("group", "progress", "readers")


def test_a_filter_by_sql(terminal: Terminal) -> None:
    terminal.text("topic", "create", "priced", "--queues", "1")
    for price in ("5", "15", "25"):
        terminal.text("send", "priced", price, "--property", f"price={price}")
    refused = terminal.error("consume", "priced", "--sql", "price > 10", "--count", "1", "--timeout", "10")
    assert "see its key enablePropertyFilter" in refused
    terminal.text("cluster", "config", "--set", "enablePropertyFilter=true")
    for group in ((), ("-g", "buyers")):
        rows = terminal.lines("consume", "priced", *group, "--sql", "price > 10", "--count", "2", "--timeout", "20")
        assert [row["body"] for row in rows] == ["15", "25"]
    assert "line 1, column 9" in terminal.error("consume", "priced", "--sql", "price > > 10", "--count", "1")
    assert "not by both" in terminal.error("consume", "priced", "-g", "x", "--tags", "a", "--sql", "price > 10")


def test_where_a_group_goes_on_is_planned_then_done(terminal: Terminal) -> None:
    terminal.text("topic", "create", "replayed", "--queues", "2")
    terminal.text("send", "replayed", typed="".join(f"m{number}\n" for number in range(8)))
    terminal.lines("consume", "replayed", "-g", "replaying", "--count", "8", "--timeout", "20")

    def offsets(group: str) -> list[int]:
        queues = terminal.json("group", "progress", group, "--topic", "replayed")["queues"]
        return [row["consumer_offset"] for row in queues]

    first, second = offsets("replaying")
    assert first + second == 8
    reset = ("group", "reset-offset", "replaying", "replayed")
    assert "nothing was changed" in terminal.text(*reset, "--queue", "broker-a:1", "--to", "begin", "--dry-run")
    assert offsets("replaying") == [first, second]
    moved = terminal.json(*reset, "--queue", "broker-a:1", "--to", "begin")
    assert [(row["queue"], row["before"], row["offset"]) for row in moved] == [(1, second, 0)]
    assert offsets("replaying") == [first, 0]
    terminal.text(*reset, "--queue", "broker-a:1", "--offset", "1")
    assert offsets("replaying") == [first, 1]
    kept = terminal.json(*reset, "--queue", "broker-a:1", "--to", "end", "--back-only")
    assert [row["offset"] for row in kept] == [1]
    copied = terminal.json("group", "clone-offset", "replaying", "copying", "replayed", "--dry-run")
    assert [row["offset"] for row in copied] == [first, 1]
    terminal.text("group", "clone-offset", "replaying", "copying", "replayed")
    assert offsets("copying") == [first, 1]
    skipped = terminal.json("group", "skip", "copying", "replayed", "--dry-run")
    assert [row["messages"] for row in skipped] == [0, second - 1]
    terminal.text("group", "skip", "copying", "replayed")
    assert offsets("copying") == [first, second]
    assert offsets("replaying") == [first, 1]
    assert "has no queue broker-a:7" in terminal.error(*reset, "--queue", "broker-a:7", "--to", "end")
    assert "broker's name and a number" in terminal.error(*reset, "--queue", "seven", "--to", "end", code=2)
    assert "one of the two" in terminal.error(*reset, code=2)
    assert "name it with --queue" in terminal.error(*reset, "--offset", "1", code=2)
    # What would be refused is refused by the plan, in the same words.
    far = (*reset, "--queue", "broker-a:1", "--offset", "99")
    assert "not in the queue's range" in terminal.error(*far)
    assert terminal.error(*far, "--dry-run") == terminal.error(*far)
    for unknown in (("reset-offset", "nobody", "replayed", "--to", "begin"), ("skip", "nobody", "replayed")):
        refused = terminal.error("group", *unknown, "--dry-run")
        assert "Group nobody does not exist" in refused
        assert terminal.error("group", *unknown) == refused
    kept = terminal.json(*far, "--back-only")
    assert [(row["before"], row["offset"]) for row in kept] == [(1, 1)]
    clone = ("group", "clone-offset", "replaying", "unmade", "replayed")
    terminal.text("cluster", "config", "--set", "autoCreateSubscriptionGroup=false")
    assert "group[unmade] not exist" in terminal.error(*clone, "--dry-run")
    assert terminal.error(*clone, "--dry-run") == terminal.error(*clone)
    terminal.text("cluster", "config", "--set", "autoCreateSubscriptionGroup=true")
    assert terminal.json(*clone, "--dry-run")
    assert "has no offsets in replayed" in terminal.error("group", "clone-offset", "nobody", "copying", "replayed")


def test_waiting_for_more_than_comes_fails(terminal: Terminal) -> None:
    terminal.text("topic", "create", "silent", "--queues", "1")
    assert "0 of 1 messages" in terminal.error("consume", "silent", "--count", "1", "--timeout", "0.6")


def test_topics(terminal: Terminal) -> None:
    assert terminal.json("topic", "create", "menu", "--read-queues", "3", "--write-queues", "2", "--perm", "6")[
        "brokers"
    ] == [terminal.cluster.broker.address]
    assert "menu" in terminal.json("topic", "list")
    assert "TBW102" not in terminal.json("topic", "list")
    assert "TBW102" in terminal.json("topic", "list", "--system")
    route = terminal.json("topic", "route", "menu")
    assert [(row["read_queues"], row["write_queues"], row["perm"], row["id"]) for row in route] == [(3, 2, 6, 0)]
    terminal.text("topic", "update", "menu", "--perm", "4")
    route = terminal.json("topic", "route", "menu")
    assert [(row["read_queues"], row["write_queues"], row["perm"]) for row in route] == [(3, 2, 4)]
    status = terminal.json("topic", "status", "menu")
    assert [(row["queue"], row["min_offset"], row["max_offset"]) for row in status][:2] == [(0, 0, 0), (1, 0, 0)]
    terminal.text("topic", "delete", "menu")
    assert "menu" not in terminal.json("topic", "list")
    assert "no topic menu" in terminal.error("topic", "delete", "menu")
    assert "no topic menu" in terminal.error("topic", "route", "menu")
    assert "topic create" in terminal.error("topic", "update", "menu", "--perm", "4")
    assert "topic" in terminal.error("topic", "create", "no spaces allowed")


def test_groups(terminal: Terminal) -> None:
    terminal.text("group", "create", "diners", "--retries-max", "3")
    row = next(row for row in terminal.json("group", "list") if row["group"] == "diners")
    assert row == {"group": "diners", "members": 0, "lag": 0, "consume_enabled": True, "retries_max": 3}
    assert "nobody of the group diners is online" in terminal.error("group", "connections", "diners")
    assert "has consumed nothing" in terminal.error("group", "progress", "diners")
    terminal.text("group", "delete", "diners")
    assert "no group" in terminal.error("group", "delete", "diners").replace("no broker has the", "no")
    assert "is no time" in terminal.error("group", "reset-offset", "diners", "menu", "--to", "soon", code=2)


def test_a_group_is_set_to_pop_a_topic(terminal: Terminal) -> None:
    assert "no mode is set for diners and menu" in terminal.error("group", "mode", "diners", "menu")
    assert "--share goes with --pop" in terminal.error("group", "mode", "diners", "menu", "--share", "1", code=2)
    done = terminal.json("group", "mode", "diners", "menu", "--pop", "--share", "2")
    assert done == {"group": "diners", "brokers": [terminal.cluster.broker.address]}
    shown = {"group": "diners", "topic": "menu", "mode": "POP", "share": 2}
    assert terminal.json("group", "mode", "diners", "menu") == shown
    terminal.text("group", "mode", "diners", "menu", "--pull")
    assert terminal.json("group", "mode", "diners", "menu")["mode"] == "PULL"


def test_messages_are_found_by_id_key_and_unique_key(terminal: Terminal) -> None:
    sent = terminal.lines("send", "found", "needle", "--key", "order-17")[0]
    terminal.routed("found")
    by_offset_id = terminal.json("message", "get", sent["offset_id"])
    by_unique_id = terminal.json("message", "get", sent["id"], "--topic", "found")
    assert by_offset_id["body"] == by_unique_id["body"] == "needle"
    assert by_offset_id["id"] == sent["id"]
    assert [message["body"] for message in terminal.json("message", "query", "found", "order-17")] == ["needle"]
    assert [m["body"] for m in terminal.json("message", "query", "found", sent["id"], "--unique")] == ["needle"]
    assert terminal.json("message", "query", "found", "order-17", "--end", "2001-01-01T00:00:00") == []
    assert "no message has the key" in terminal.text("message", "query", "found", "order-18")
    assert "needle" in terminal.text("message", "get", sent["offset_id"])
    assert "hex digits" in terminal.error("message", "get", "nonsense")
    assert "no message at offset 99" in terminal.error("message", "view", "found", "broker-a:0", "99")


def test_cluster(terminal: Terminal) -> None:
    brokers = terminal.json("cluster", "list")
    address = terminal.cluster.broker.address
    where = {"cluster": "DefaultCluster", "broker": "broker-a", "id": 0, "address": address}
    assert brokers == [{**where, "version": f"raftmq {RELEASE}"}]
    assert CliRunner().invoke(app, ["--version"]).output == f"raftmq {RELEASE}, hot path: {describe()}\n"
    status = terminal.json("cluster", "status")
    assert int(status[address]["commitLogMaxOffset"]) >= 0
    assert re.search(r"^broker-a 0 master 0 - \d+% \d+ \d+ ", terminal.text("cluster", "status"), re.MULTILINE)
    assert terminal.json("cluster", "config", "brokerName") == {address: {"brokerName": "broker-a"}}
    changed = terminal.json("cluster", "config", "--set", "fileReservedTime=71")
    assert changed == {address: {"fileReservedTime": "71"}}
    assert "fileReservedTime 71" in terminal.text("cluster", "config", "fileReservedTime")
    # What only a start can change stays as it is in the process, and is kept in the file.
    later = CliRunner().invoke(app, ["cluster", "config", "--set", "maxMessageSize=3210000", "-n", terminal.address])
    assert later.exit_code == 0
    assert "maxMessageSize=3210000 is kept and takes effect when it starts again" in later.stderr
    assert "maxMessageSize=3210000" in (terminal.cluster.folder / "broker" / "broker.conf").read_text()
    assert "brokerName broker-a" in terminal.text("cluster", "config")
    assert "knows no key" in terminal.error("cluster", "config", "noSuchKey")
    of_namesrv = terminal.json("cluster", "config", "listenPort", "--of-namesrv")
    assert of_namesrv == {terminal.cluster.address: {"listenPort": terminal.cluster.address.rpartition(":")[2]}}
    assert "no cluster Elsewhere" in terminal.error("cluster", "list", "--cluster", "Elsewhere")


def test_message_get_takes_the_ids_that_send_prints(terminal: Terminal) -> None:
    sent = terminal.lines("send", "by_id", "found again")[0]
    terminal.routed("by_id")
    for name in ("id", "offset_id"):
        assert terminal.json("message", "get", sent[name])["body"] == "found again"
    assert "there is no message" in terminal.error("message", "get", "0" * 32)


def test_a_line_that_cannot_be_sent_leaves_word_of_those_before_it(terminal: Terminal) -> None:
    lines = "first\n\nthird\n" + "x" * (5 << 20) + "\nnever\n"
    done = CliRunner().invoke(app, ["send", "by_line", "-n", terminal.address, "--json"], input=lines)
    assert done.exit_code == 1
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["SEND_OK", "SEND_OK"]
    assert done.stderr.splitlines()[-1] == "raftmq: line 4 of standard input failed; messages sent before it: 2"


def test_no_namesrv_is_one_line_that_helps(terminal: Terminal) -> None:
    line = terminal.error("topic", "list", "-n", "127.0.0.1:1")
    assert "127.0.0.1:1" in line
    assert line.startswith("raftmq: ")


def test_benchmarks_through_the_client(terminal: Terminal) -> None:
    address = terminal.cluster.address
    consumed = terminal.lines("bench", "consume", "-n", address, "--messages", "500")
    assert consumed[0]["messages"] == 500
    sent, delivered = terminal.lines("bench", "at-rest", "-n", address, "--messages", "20")
    assert 0 < sent["p50_ms"] <= delivered["max_ms"]
    direct = terminal.lines("bench", "send", "-a", terminal.cluster.broker.address, "--seconds", "0.2")
    assert direct[0]["messages"] > 0
    assert direct[0]["server_cpu_us_per_message"] is None


def test_the_registration_benchmark_registers(terminal: Terminal) -> None:
    found = terminal.json("bench", "registration", "--topics", "300")
    assert [row["what"] for row in found] == [
        "full, plain",
        "full, compressed",
        "version only (322)",
        "route of one topic",
    ]
    plain, compressed, version, _route = (row["body_bytes"] for row in found)
    assert plain > 10 * compressed > 10 * version
    assert all(row["took_ms"] > 0 and row["server_memory_mb"] > 1 for row in found)


def test_inspect_reads_the_store_of_a_broker(terminal: Terminal) -> None:
    store = str(terminal.cluster.folder / "broker" / "store")
    # How much lies before it depends on how fast the benchmarks above were.
    begin = terminal.json("inspect", store)["segments"][-1]["end"]
    terminal.text("send", "inspected", "x")
    found = terminal.json("inspect", store)
    assert found["unclean"] is True
    assert sum(segment["records"] for segment in found["segments"]) > 0
    assert "not closed in good order" in terminal.text("inspect", store)
    bodies = [message["body"] for message in terminal.lines("inspect", store, "--messages", "--from", str(begin))]
    assert bodies == ["x"]
    assert "is no store folder" in terminal.error("inspect", str(terminal.cluster.folder))


def test_every_command_is_documented_and_explains_itself() -> None:
    page = (DOCS / "commands.md").read_text()
    runner = CliRunner()
    waiting: list[tuple[str, Any]] = [("raftmq", get_command(app))]
    while waiting:
        path, command = waiting.pop()
        assert runner.invoke(app, [*path.split()[1:], "--help"]).exit_code == 0
        if not isinstance(command, TyperGroup):
            continue
        # The commands of a group share its row; those at the top, and groups in a group, have their own.
        row = next((line for line in page.splitlines() if line.startswith(f"| `{path} ")), "")
        for name, below in command.commands.items():
            waiting.append((f"{path} {name}", below))
            own = path == "raftmq" or isinstance(below, TyperGroup)
            told = f"`{path} {name}" in page if own else re.search(rf"\b{re.escape(name)}\b", row)
            assert told, f"{path} {name}"
