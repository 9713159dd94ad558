"""chaos/site/toxiproxy.py and chaos/proxy: what a fault proxy server does, the same for ours and for Shopify's."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.proxy.errors import ToxiExists, ToxiNotFound
from chaos.proxy.toxics import Stream
from chaos.site.toxiproxy import Toxi, ToxiproxyLink, server
from tests.chaos.shopify import NoShopify, program
from tests.chaos.wires import WAIT_S, Ask, Far, ended, ends, receive, silent

pytestmark = pytest.mark.timeout(300)  # Go may have to build the real one first


@pytest.fixture(scope="session")
def shopify(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return str(program(tmp_path_factory.mktemp("toxiproxy")))
    except NoShopify as why:
        pytest.skip(str(why))


# `make test-spark` holds Shopify's to the same: Go builds it first, which takes 40 seconds of a processor.
built_by_go = pytest.mark.long


@pytest.fixture(scope="module", params=["thread", "process", pytest.param("shopify", marks=built_by_go)])
def toxi(request: pytest.FixtureRequest) -> Iterator[Toxi]:
    where = request.getfixturevalue("shopify") if request.param == "shopify" else request.param
    with server(where, seed=6) as made:
        yield made


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


@pytest.fixture
def link(toxi: Toxi, far: Far) -> Iterator[ToxiproxyLink]:
    made = toxi.create("a link", far.address)
    yield made
    made.destroy()


def test_bytes_go_both_ways_unchanged(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    sent = bytes(range(256)) * 16_384
    for source, sink in ((near, away), (away, near)):
        sender = threading.Thread(target=source.sendall, args=(sent,))
        sender.start()
        assert receive(sink, len(sent)) == sent
        sender.join()


def test_the_end_closes_both_ways(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    near.sendall(b"last words")
    near.shutdown(socket.SHUT_WR)
    assert receive(away, 100) == b"last words"
    assert ended(near)


def test_nobody_upstream_ends_the_connection(toxi: Toxi) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # not listening
        link = toxi.create("to nobody", f"127.0.0.1:{nobody.getsockname()[1]}")
        with socket.create_connection(("127.0.0.1", link.port), timeout=WAIT_S) as near:
            assert ended(near)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_delays_one_stream_of_open_connections(link: ToxiproxyLink, far: Far, stream: Stream) -> None:
    source, sink = ends(stream, far.pair(link))
    link.add("latency", latency=1500, jitter=20, stream=stream)
    began = time.monotonic()
    source.sendall(b"slow")
    assert receive(sink, 4) == b"slow"
    assert 1.47 <= time.monotonic() - began < WAIT_S
    # The other stream has none of it: the quickest of some, for a machine at work may keep one waiting as long.
    assert min(way_took(sink, source) for _ in range(5)) < 1.2


def way_took(source: socket.socket, sink: socket.socket) -> float:
    began = time.monotonic()
    source.sendall(b"fast")
    assert receive(sink, 4) == b"fast"
    return time.monotonic() - began


def test_removing_latency_delivers_at_once(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    link.add("latency", latency=60_000, stream="upstream")
    near.sendall(b"soon")
    assert silent(away)
    link.remove("latency_upstream")
    assert receive(away, 4) == b"soon"
    near.sendall(b"more")
    assert receive(away, 4) == b"more"


def test_updated_attributes_hold_from_then_on(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    link.add("latency", latency=60_000, stream="upstream", name="slow")
    assert link.update("slow", latency=1).attributes == {"latency": 1, "jitter": 0}
    near.sendall(b"now")
    assert receive(away, 3) == b"now"
    assert link.toxics()["slow"].attributes["latency"] == 1


def test_bandwidth_limits_the_rate(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    link.add("bandwidth", rate=100, stream="upstream")
    began = time.monotonic()
    near.sendall(bytes(40_000))
    assert len(receive(away, 40_000)) == 40_000
    assert 0.3 <= time.monotonic() - began < WAIT_S


def test_slicer_cuts_into_small_pieces(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    # So far apart that a receiver who does not run for two seconds still finds some alone.
    link.add("slicer", average_size=10, size_variation=2, delay=400_000, stream="upstream")
    sent = bytes(range(120))
    near.sendall(sent)
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < len(sent):
        pieces.append(away.recv(len(sent)))
    assert b"".join(pieces) == sent
    assert len(pieces) >= 4  # the receiver may be late and find some together


def test_limit_data_ends_after_so_many_bytes(link: ToxiproxyLink, far: Far) -> None:
    link.add("limit_data", bytes=7, stream="upstream")
    near, away = far.pair(link)
    near.sendall(b"four")
    assert receive(away, 4) == b"four"
    near.sendall(b"and more")
    assert receive(away, 100) == b"and"


def test_timeout_zero_throws_away_and_its_removal_ends(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    link.add("timeout", timeout=0, stream="upstream")
    near.sendall(b"lost")
    assert silent(away)
    away.sendall(b"other way")
    assert receive(near, 9) == b"other way"
    link.remove("timeout_upstream")
    assert ended(away)


def test_timeout_ends_after_its_time(link: ToxiproxyLink, far: Far) -> None:
    _, away = far.pair(link)
    began = time.monotonic()
    link.add("timeout", timeout=200, stream="upstream")
    assert ended(away)
    assert 0.18 <= time.monotonic() - began < WAIT_S


def test_reset_peer_resets_the_dialler(link: ToxiproxyLink, far: Far) -> None:
    link.add("reset_peer", timeout=50, stream="upstream")
    near, _ = far.pair(link)
    near.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        near.recv(1)


def test_slow_close_delays_the_end(link: ToxiproxyLink, far: Far) -> None:
    link.add("slow_close", delay=300, stream="upstream")
    near, away = far.pair(link)
    near.sendall(b"bye")
    began = time.monotonic()
    near.close()
    assert receive(away, 3) == b"bye"
    assert ended(away)
    # By the clock: who looks for silence may look too late for it.
    assert time.monotonic() - began >= 0.28


def test_down_refuses_and_drops_and_up_has_the_same_port(link: ToxiproxyLink, far: Far) -> None:
    near, away = far.pair(link)
    link.disable()
    assert ended(near)
    assert ended(away)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", link.port), timeout=WAIT_S)
    link.enable()
    near, away = far.pair(link)
    near.sendall(b"again")
    assert receive(away, 5) == b"again"


@pytest.mark.parametrize(("toxicity", "least", "most"), [(0.0, 0, 0), (0.5, 4, 36), (1.0, 40, 40)])
def test_toxicity_is_the_chance_of_a_connection(
    link: ToxiproxyLink, far: Far, toxicity: float, least: int, most: int
) -> None:
    link.add("limit_data", bytes=0, stream="upstream", toxicity=toxicity)
    hit = 0
    for _ in range(40):
        near, away = far.pair(link)
        near.sendall(b"x")
        hit += away.recv(1) == b""
    assert least <= hit <= most


def test_toxics_stand_in_a_chain(link: ToxiproxyLink, far: Far) -> None:
    link.add("latency", latency=150, stream="upstream", name="first")
    link.add("limit_data", bytes=2, stream="upstream", name="second")
    link.add("latency", latency=150, stream="upstream", name="third")
    near, away = far.pair(link)
    began = time.monotonic()
    near.sendall(b"chain")
    assert receive(away, 100) == b"ch"
    assert time.monotonic() - began >= 0.28
    assert list(link.toxics()) == ["first", "second", "third"]


def test_reset_enables_and_removes_all_toxics(toxi: Toxi, link: ToxiproxyLink, far: Far) -> None:
    link.add("latency", latency=60_000)
    link.disable()
    toxi.reset()
    assert link.toxics() == {}
    near, away = far.pair(link)
    away.sendall(b"ok")
    assert receive(near, 2) == b"ok"


def test_names_are_quoted_and_errors_have_words(toxi: Toxi, far: Far) -> None:
    link = toxi.create("b→c ?#%2F&", far.address)
    link.add("latency", latency=1, name="ten % of ?")
    assert toxi.links()[link.name].toxics() == link.toxics()
    with pytest.raises(ToxiExists, match="toxic already exists"):
        link.add("latency", latency=1, name="ten % of ?")
    with pytest.raises(ToxiExists, match="already exists"):
        toxi.create(link.name, far.address)
    link.remove("ten % of ?")
    link.remove("ten % of ?")  # is gone already
    with pytest.raises(ToxiNotFound):
        link.update("ten % of ?", latency=2)
    link.destroy()
    link.destroy()
    with pytest.raises(ToxiNotFound):
        toxi.get(link.name)
    with pytest.raises(ToxiNotFound, match="proxy not found"):
        link.toxics()


def test_two_servers_in_one_interpreter(toxi: Toxi, link: ToxiproxyLink, far: Far) -> None:
    with server("thread") as other:
        twin = other.create(link.name, far.address)
        twin.add("latency", latency=9)
        assert (len(twin.toxics()), len(link.toxics())) == (1, 0)
        assert twin.listen != link.listen
        assert set(other.links()) == {link.name}
    assert toxi.get(link.name).listen == link.listen


def test_every_route_and_error_of_the_api(toxi: Toxi, far: Far) -> None:
    """Status and, but for proxies' ports, the whole answer are the same for all servers."""
    ask = Ask(toxi.url)
    made = {"name": "p", "upstream": far.address, "listen": "127.0.0.1:0"}
    status, proxy = ask("POST", "/proxies", json.dumps(made))
    assert status == 201
    assert proxy["listen"] != "127.0.0.1:0"
    assert {field: proxy[field] for field in ("name", "upstream", "enabled", "toxics")} == {
        "name": "p",
        "upstream": far.address,
        "enabled": True,
        "toxics": [],
    }
    latency: dict[str, Any] = {"name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1}
    latency["attributes"] = {"latency": 5, "jitter": 0}
    changed = latency | {"attributes": {"latency": 7, "jitter": 0}, "toxicity": 0.5}
    asked: list[tuple[str, str, str | None, int, Any]] = [
        ("POST", "/proxies", json.dumps(made), 409, "proxy already exists"),
        ("POST", "/proxies", '{"upstream": "x:1"}', 400, "missing required field: name"),
        ("POST", "/proxies", '{"name": "q"}', 400, "missing required field: upstream"),
        ("POST", "/proxies", "{", 400, "bad request body"),
        ("POST", "/proxies", json.dumps(made | {"name": "q", "listen": proxy["listen"]}), 500, "listen tcp"),
        ("GET", "/proxies/nobody", None, 404, "proxy not found"),
        ("PATCH", "/proxies/nobody", "{}", 404, "proxy not found"),
        ("DELETE", "/proxies/nobody", None, 404, "proxy not found"),
        ("POST", "/proxies/p/toxics", '{"type": "latency", "attributes": {"latency": 5}}', 200, latency),
        ("POST", "/proxies/p/toxics", '{"type": "latency"}', 409, "toxic already exists"),
        ("POST", "/proxies/p/toxics", '{"type": "nothing"}', 400, "invalid toxic type"),
        ("POST", "/proxies/p/toxics", '{"type": "latency", "stream": "x"}', 400, "stream was invalid"),
        ("POST", "/proxies/p/toxics", "[", 400, "bad request body"),
        ("GET", "/proxies/p/toxics", None, 200, [latency]),
        ("GET", "/proxies/p/toxics/latency_downstream", None, 200, latency),
        ("GET", "/proxies/p/toxics/other", None, 404, "toxic not found"),
        (
            "PATCH",
            "/proxies/p/toxics/latency_downstream",
            '{"attributes": {"latency": 7}, "toxicity": 0.5}',
            200,
            changed,
        ),
        ("POST", "/proxies/p/toxics/latency_downstream", '{"attributes": {"latency": 7}}', 200, changed),
        ("DELETE", "/proxies/p/toxics/latency_downstream", None, 204, None),
        ("DELETE", "/proxies/p/toxics/latency_downstream", None, 404, "toxic not found"),
        ("POST", "/reset", None, 204, None),
        ("DELETE", "/proxies/p", None, 204, None),
        ("GET", "/nothing", None, 404, None),
        ("PUT", "/proxies", None, 405, None),
    ]
    for method, path, body, wanted, answer in asked:
        status, found = ask(method, path, body)
        assert status == wanted, (method, path, body, found)
        if isinstance(answer, str):
            assert answer in found["error"]
            assert found["status"] == wanted
        else:
            assert found == answer, (method, path, body)
    assert ask("GET", "/proxies", agent="Mozilla/5.0")[0] == 403


def test_populate_and_change_of_addresses(toxi: Toxi, far: Far) -> None:
    ask = Ask(toxi.url)
    one = {"name": "one", "upstream": far.address, "listen": "127.0.0.1:0"}
    status, answer = ask("POST", "/populate", json.dumps([one, one | {"name": "off", "enabled": False}]))
    assert status == 201
    assert [(proxy["name"], proxy["enabled"]) for proxy in answer["proxies"]] == [("one", True), ("off", False)]
    kept = one | {"listen": answer["proxies"][0]["listen"]}
    assert ask("POST", "/proxies/one/toxics", '{"type": "latency"}')[0] == 200
    assert len(ask("POST", "/populate", json.dumps([kept]))[1]["proxies"][0]["toxics"]) == 1
    replaced = ask("POST", "/populate", json.dumps([kept | {"upstream": "127.0.0.1:1"}]))[1]["proxies"][0]
    assert (replaced["upstream"], replaced["toxics"]) == ("127.0.0.1:1", [])
    status, changed = ask("PATCH", "/proxies/one", json.dumps({"upstream": far.address}))
    assert (status, changed["upstream"], changed["listen"], changed["enabled"]) == (
        200,
        far.address,
        kept["listen"],
        True,
    )
    far.pair(toxi.get("one"))
    status, answer = ask("POST", "/populate", '[{"name": "x"}]')
    assert (status, answer["error"]) == (400, "missing required field: upstream at proxy 1")
    toxi.clear()
    assert toxi.links() == {}


@built_by_go
def test_the_log_takes_what_the_process_prints(shopify: str, tmp_path: Path) -> None:
    log = tmp_path / "toxiproxy.log"
    with server(shopify, log=log) as toxi:
        assert not toxi.ours
    assert b"Starting Toxiproxy" in log.read_bytes()
