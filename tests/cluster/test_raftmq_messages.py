"""`raftmq message`: by either id, by time, and the traces of a message."""

import time

import pytest

from tests.cluster.test_raftmq_cli import Terminal, terminal

__all__ = ["terminal"]


def test_either_id_that_send_prints_finds_the_message_with_its_topic_and_without(terminal: Terminal) -> None:
    sent = terminal.lines("send", "either", "needle")[0]
    terminal.routed("either")
    for named in (sent["id"], sent["offset_id"]):
        assert terminal.json("message", "get", named)["body"] == "needle"
        assert terminal.json("message", "get", named, "--topic", "either")["body"] == "needle"
    unknown = sent["id"][:-4] + "FFFF"
    assert "there is no message" in terminal.error("message", "get", unknown)


def test_messages_are_listed_by_the_time_of_their_storage(terminal: Terminal) -> None:
    terminal.text("topic", "create", "timed", "--queues", "2")
    terminal.text("send", "timed", typed="a\nb\nc\n")
    time.sleep(0.01)
    middle = str(time.time_ns() // 1_000_000)
    time.sleep(0.01)
    terminal.text("send", "timed", typed="d\ne\n")

    def bodies(*arguments: str) -> list[str]:
        return [message["body"] for message in terminal.json("message", "list", "timed", *arguments)]

    assert bodies() == ["a", "b", "c", "d", "e"]
    assert bodies("--to", middle) == ["a", "b", "c"]
    assert bodies("--from", middle) == ["d", "e"]
    assert bodies("--from", middle, "--to", middle) == []
    assert bodies("--limit", "2") == ["a", "b"]
    assert bodies("--from", "end") == []
    assert "broker-a:" in terminal.text("message", "list", "timed")
    assert "is no time" in terminal.error("message", "list", "timed", "--from", "soon", code=2)
    assert "holds nothing" in terminal.error("message", "list", "timed", "--from", "end", "--to", "1", code=2)
    assert "No topic route info" in terminal.error("message", "list", "nowhere")


def test_a_trace_is_shown_as_table_and_json(terminal: Terminal) -> None:
    sent = terminal.lines("send", "traced", "x", "--key", "order-9", "--trace")[0]
    deadline = time.monotonic() + 20
    while "RMQ_SYS_TRACE_TOPIC" not in terminal.text("topic", "list", "--system") and time.monotonic() < deadline:
        time.sleep(0.05)
    # Found by its key a moment after it is stored.
    while "no trace" in terminal.text("message", "trace", sent["id"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for named in (sent["id"], "order-9", sent["offset_id"]):
        (record,) = terminal.json("message", "trace", named)
        assert (record["kind"], record["msg_id"], record["offset_msg_id"]) == ("Pub", sent["id"], sent["offset_id"])
        assert (record["keys"], record["success"], record["group"]) == ("order-9", True, "raftmq_cli")
    assert "sent raftmq_cli" in terminal.text("message", "trace", sent["id"])
    untraced = terminal.lines("send", "traced", "y")[0]
    for named in (untraced["id"], untraced["offset_id"], "F" * 32):
        assert f"no trace of {named}" in terminal.text("message", "trace", named)


@pytest.mark.parametrize("topic", ["Elsewhere"])
def test_traces_of_a_topic_that_is_not_there(terminal: Terminal, topic: str) -> None:
    assert "No topic route info" in terminal.error("message", "trace", "x", "--topic", topic)
