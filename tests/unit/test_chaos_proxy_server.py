"""chaos/proxy/server.py and its launchers: what ours has beside Toxiproxy's API, and its limits."""

import contextlib
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from chaos.proxy import server as proxy_server
from chaos.proxy.errors import LaunchError, ToxiError, ToxiRefused
from chaos.proxy.launch import in_process, in_thread, shopify
from chaos.site.toxiproxy import Toxi


@pytest.fixture
def toxi() -> Iterator[Toxi]:
    with in_thread(seed=3) as url, Toxi(url) as made:
        yield made


def test_counters_and_journal_are_told(toxi: Toxi) -> None:
    link = toxi.create("a-b", "127.0.0.1:1")
    link.hold()
    assert set(link.toxics()) == {"hold_upstream", "hold_downstream"}
    link.release()
    link.release()
    assert toxi.ours
    stream = {"received": 0, "sent": 0, "lost": 0, "kept": 0}
    assert toxi.counters() == {
        "a-b": {"accepted": 0, "open": 0, "refused": 0, "reset": 0, "upstream": stream, "downstream": stream}
    }
    events = toxi.journal()
    assert [event.what for event in events] == ["enabled", "created", "added", "added", "removed", "removed"]
    assert toxi.journal(since=4) == events[4:]
    with pytest.raises(ToxiRefused, match="number of an event"):
        toxi.journal(since=-1)


def test_the_metrics_face_tells_the_proxies(toxi: Toxi) -> None:
    toxi.create("a-b", "127.0.0.1:1")
    toxi.create("b-a", "127.0.0.1:1", enabled=False)
    with contextlib.closing(http.client.HTTPConnection(toxi.url.removeprefix("http://"), timeout=5)) as asked:
        asked.request("GET", "/metrics")
        assert b"raftmq_fault_proxies 2.0" in asked.getresponse().read()


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/proxies", {"name": "a/b", "upstream": "x:1"}, "no slash"),
        ("/proxies", {"name": "a" * 300, "upstream": "x:1"}, "at most 200"),
        ("/proxies", {"name": 3, "upstream": "x:1"}, "name must be a string"),
        ("/proxies", {"name": "a", "upstream": "x"}, "host:port"),
        ("/proxies", {"name": "a", "upstream": "x:1", "enabled": "yes"}, "true or false"),
        ("/proxies", [], "a JSON object"),
        ("/populate", {}, "an array"),
        ("/proxies/there/toxics", {"type": "latency", "attributes": {"latencyy": 1}}, "no attribute 'latencyy'"),
    ],
)
def test_wrong_requests_are_refused_with_words(toxi: Toxi, path: str, body: object, words: str) -> None:
    toxi.create("there", "127.0.0.1:1")
    with pytest.raises(ToxiRefused, match=words):
        toxi.request("POST", path, json=body)
    assert set(toxi.links()) == {"there"}


def test_one_proxy_too_many_is_refused(toxi: Toxi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_server, "PROXIES_MAX", 2)
    for number in range(2):
        toxi.create(f"p{number}", "127.0.0.1:1")
    with pytest.raises(ToxiRefused, match="there are 2 proxies"):
        toxi.create("p2", "127.0.0.1:1")
    toxi.links()["p0"].destroy()
    toxi.create("p2", "127.0.0.1:1")


def test_a_port_that_is_taken_is_an_error_and_no_proxy(toxi: Toxi) -> None:
    first = toxi.create("first", "127.0.0.1:1")
    with pytest.raises(ToxiError, match=r"HTTP 500: listen tcp .*in use"):
        toxi.create("second", "127.0.0.1:1", listen=first.listen)
    assert set(toxi.links()) == {"first"}


def test_the_thread_ends_with_the_block() -> None:
    with in_thread() as url:
        assert any(thread.name == "fault proxies" for thread in threading.enumerate())
    assert not any(thread.name == "fault proxies" for thread in threading.enumerate())
    with Toxi(url, attempts=1) as toxi, pytest.raises(ToxiError, match="is the server running"):
        toxi.links()


def test_a_process_of_its_own_on_a_port_that_is_taken_says_so() -> None:
    with in_process(seed=1) as url:
        port = url.rpartition(":")[2]
        command = [sys.executable, "-m", "chaos.proxy", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert done.stdout == ""


def test_a_program_that_is_not_there_is_an_error_with_words() -> None:
    with pytest.raises(LaunchError, match="no-such-program is not to be found"), shopify("no-such-program"):
        pass
