"""chaos/site/toxiproxy.py against servers that misbehave: silent, failing, gone, or no fault proxy server at all."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from chaos.proxy.errors import ToxiError, ToxiExists, ToxiRefused, ToxiUnreachable
from chaos.site.toxiproxy import Toxi, server

PROXY = {"name": "p", "listen": "127.0.0.1:5", "upstream": "127.0.0.1:6", "enabled": True, "toxics": []}


class Script:
    """A server that answers as the test says: (status, JSON value or bytes), None: not at all."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object] | None] = []
        self.asked: list[tuple[str, str]] = []
        self.released = threading.Event()
        script = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                script.asked.append((self.command, self.path))
                given = script.answers.pop(0)
                if given is None:
                    script.released.wait(10)
                    self.close_connection = True
                    return
                status, value = given
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = do_PATCH = answer

            def log_message(self, _text: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    yield made
    made.close()


@pytest.fixture
def toxi(script: Script) -> Iterator[Toxi]:
    """One that waits for as long as a busy machine may take to answer."""
    with Toxi(script.url + "/", timeout_s=10, attempts=3) as made:
        yield made


@pytest.fixture
def hurried(script: Script) -> Iterator[Toxi]:
    """One for answers that do not come."""
    with Toxi(script.url + "/", timeout_s=2.5, attempts=3) as made:
        yield made


def test_a_silent_server_costs_the_timeouts_and_no_more(script: Script, hurried: Toxi) -> None:
    script.answers += [None] * 3
    began = time.monotonic()
    with pytest.raises(ToxiUnreachable, match=r"list the proxies: GET /proxies: no answer: ReadTimeout"):
        hurried.links()
    # Three time-outs, and what a busy machine takes; one try more than three would find no answer in the script.
    assert 7.4 <= time.monotonic() - began < 60
    assert len(script.asked) == 3


def test_a_server_that_comes_back_is_asked_again(script: Script, hurried: Toxi) -> None:
    script.answers += [(503, b""), None, (200, {"p": PROXY})]
    (link,) = hurried.links().values()
    assert (link.name, link.listen, link.port, link.upstream) == ("p", "127.0.0.1:5", 5, "127.0.0.1:6")


def test_a_creation_without_an_answer_is_found_done(script: Script, hurried: Toxi) -> None:
    script.answers += [(200, {}), None, (200, {"p": PROXY}), (200, {"p": PROXY})]
    assert hurried.create("p", "127.0.0.1:6").listen == "127.0.0.1:5"
    script.answers += [(200, {"p": PROXY})]
    with pytest.raises(ToxiExists, match="already exists"):
        hurried.create("p", "127.0.0.1:6")


def test_a_toxic_without_an_answer_is_found_added(script: Script, hurried: Toxi) -> None:
    script.answers += [(200, {"p": PROXY}), None, (409, {"error": "toxic already exists", "status": 409})]
    assert hurried.get("p").add("latency", latency=1).name == "latency_downstream"
    script.answers += [(200, {"p": PROXY}), (409, {"error": "toxic already exists", "status": 409})]
    with pytest.raises(ToxiExists, match="add latency_downstream to p: toxic already exists"):
        hurried.get("p").add("latency", latency=1)


def test_an_error_5xx_is_one_at_once(script: Script, toxi: Toxi) -> None:
    script.answers += [(500, {"error": "listen tcp: taken", "status": 500})]
    with pytest.raises(ToxiError, match="reset: POST /reset: HTTP 500: listen tcp: taken"):
        toxi.reset()
    assert len(script.asked) == 1


@pytest.mark.parametrize("answer", [b"<html>", {"p": {"unknown": 1}}])
def test_who_is_no_fault_proxy_server_is_told_so(script: Script, toxi: Toxi, answer: object) -> None:
    script.answers += [(200, answer)]
    with pytest.raises(ToxiError, match="none of Toxiproxy's"):
        toxi.links()


def test_what_shopifys_server_lacks_is_refused_with_words(script: Script, toxi: Toxi) -> None:
    script.answers += [(200, {"version": "2.12.0"}), (200, {"p": PROXY})]
    assert toxi.version == "2.12.0"
    link = toxi.get("p")
    for ask in (link.hold, toxi.counters, toxi.journal):
        with pytest.raises(ToxiRefused, match=r"use the server of chaos\.proxy"):
            ask()


def test_what_is_wrong_is_refused_before_it_is_asked(script: Script, toxi: Toxi) -> None:
    script.answers += [(200, {"p": PROXY})]
    link = toxi.get("p")
    for refused in (
        lambda: link.add("latency", delay=3),
        lambda: link.add("lateness"),
        lambda: link.add("latency", toxicity=2),
        lambda: link.add("latency", name="a/b"),
        lambda: toxi.create("a/b", "127.0.0.1:1"),
    ):
        with pytest.raises(ToxiRefused, match=toxi.url):
            refused()
    assert len(script.asked) == 1


def test_a_proxy_for_the_web_is_none_for_these(script: Script, toxi: Toxi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    script.answers += [(200, {})]
    assert toxi.links() == {}


def test_threads_use_their_own_server() -> None:
    with server() as one, server() as two:

        def work(toxi: Toxi, names: str) -> None:
            for name in names:
                toxi.create(name, "127.0.0.1:1").add("latency", latency=1)

        threads = [threading.Thread(target=work, args=given) for given in ((one, "abcdef"), (two, "uvwxyz"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (set(one.links()), set(two.links())) == (set("abcdef"), set("uvwxyz"))


def test_a_url_is_a_server_that_runs_and_goes_on() -> None:
    with server() as own:
        own_link = own.create("a", "127.0.0.1:1")
        with server(own.url) as same:
            assert same.get("a").listen == own_link.listen
        assert own.links() == {}  # its proxies went with the block
        assert own.version
