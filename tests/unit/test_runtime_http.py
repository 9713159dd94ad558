"""runtime/http.py: health, readiness, metrics and JSON pages over a real socket."""

import asyncio
import gzip

import aiohttp
import pytest
import yarl

from runtime.figures import gauge
from runtime.http import BODY_BYTES_MAX, HttpCall, HttpFace, Reply
from runtime.metrics import Metrics


@pytest.mark.parametrize(("reason", "status"), [(None, 200), ("recovering", 503)])
async def test_pages(reason: str | None, status: int) -> None:
    metrics = Metrics()
    metrics.show(lambda: [gauge("rocketmq_topic_number", "Topics", 3)])
    face = HttpFace(metrics, lambda: reason, {"/v1/status": lambda: {"queues": {0: 7}}})
    await face.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{face.port}") as session:
            async with session.get("/healthz") as answer:
                assert answer.status == 200
            async with session.get("/readyz") as answer:
                assert answer.status == status
                assert (await answer.json()).get("reason") == reason
            async with session.get("/metrics") as answer:
                assert "rocketmq_topic_number 3.0" in await answer.text()
            async with session.get("/v1/status") as answer:
                assert await answer.json() == {"queues": {"0": 7}}
            async with session.get("/nothing") as answer:
                assert answer.status == 404
    finally:
        await face.close()


async def test_who_may_not_ask_gets_403_but_for_health_and_a_line_in_the_audit_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "audit")
    asked_of: list[tuple[str, str]] = []

    def judge(host: str, own: str) -> str | None:
        asked_of.append((host, own))
        return f"{host} may not" if host == "127.0.0.2" else None

    pages = {"/v1/status": lambda: {"a": 1}}
    face = HttpFace(Metrics(), lambda: None, pages, judge=judge)
    await face.start("127.0.0.1", 0)
    try:
        for host, refused in (("127.0.0.1", 200), ("127.0.0.2", 403)):
            way = aiohttp.TCPConnector(local_addr=(host, 0))
            async with aiohttp.ClientSession(f"http://127.0.0.1:{face.port}", connector=way) as session:
                for path in ("/healthz", "/readyz"):
                    async with session.get(path) as answer:
                        assert answer.status == 200
                for path in ("/metrics", "/v1/status", "/v1/nothing"):
                    async with session.get(path) as answer:
                        assert answer.status == (404 if refused == 200 and path == "/v1/nothing" else refused)
                        assert refused == 200 or await answer.text() == "127.0.0.2 may not\n"
    finally:
        await face.close()
    assert set(asked_of) == {("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.1")}
    # One line: the others are the same again.
    (record,) = [record for record in caplog.records if record.name == "audit"]
    assert record.getMessage() == "127.0.0.2 asked for HTTP GET /metrics: refused with 403 (127.0.0.2 may not)"
    assert record.__dict__["audit"]["code"] == "403"


async def test_routes_get_the_call_and_give_the_reply() -> None:
    calls: list[HttpCall] = []

    async def act(call: HttpCall) -> Reply:
        calls.append(call)
        return Reply(201, {"body": call.body.decode()}) if call.body else Reply(204)

    face = HttpFace(Metrics(), lambda: None, {}, routes={("POST", "/a/{one}/b"): act, ("DELETE", "/a/{one}"): act})
    await face.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{face.port}", headers={"User-Agent": "me"}) as session:
            async with session.post(yarl.URL("/a/x%20%3Fy/b?since=3", encoded=True), data=b"hello") as answer:
                assert (answer.status, await answer.json()) == (201, {"body": "hello"})
            async with session.delete("/a/z") as answer:
                assert (answer.status, await answer.read()) == (204, b"")
            async with session.get("/a/z") as answer:
                assert answer.status == 405
            async with session.post("/a/z/b", data=bytes(BODY_BYTES_MAX + 1)) as answer:
                assert answer.status == 413
    finally:
        await face.close()
    assert [(dict(call.names), dict(call.query), call.agent) for call in calls] == [
        ({"one": "x ?y"}, {"since": "3"}, "me"),
        ({"one": "z"}, {}, "me"),
    ]


async def test_what_no_route_can_read_is_the_askers_mistake() -> None:
    """A compressed body was unpacked before anybody saw it, or was a 500; so was a name that is no UTF-8."""

    async def act(call: HttpCall) -> Reply:
        return Reply(200, {"by": call.agent})

    face = HttpFace(Metrics(), lambda: None, {}, routes={("POST", "/a"): act})
    await face.start("127.0.0.1", 0)
    try:
        for body in (gzip.compress(bytes(1 << 20)), b"\x1f\x8b of no such thing"):
            head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(body)
            assert (await asked(face.port, head, body)).startswith(b"HTTP/1.1 415 ")
        answer = await asked(face.port, b"User-Agent: m\xffe\r\nContent-Length: 0\r\n", b"")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b'{"by":"m?e"}')
    finally:
        await face.close()


async def asked(port: int, head: bytes, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n" + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
