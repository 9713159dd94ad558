"""runtime/http.py: health, readiness, metrics and JSON pages over a real socket."""

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
