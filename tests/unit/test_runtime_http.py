"""runtime/http.py: health, readiness, metrics and JSON pages over a real socket."""

import aiohttp
import pytest

from runtime.http import HttpFace
from runtime.metrics import Metrics


@pytest.mark.parametrize(("reason", "status"), [(None, 200), ("recovering", 503)])
async def test_pages(reason: str | None, status: int) -> None:
    metrics = Metrics()
    gauge = metrics.gauge("rocketmq_topic_number", "Topics.")
    face = HttpFace(metrics, lambda: reason, {"/v1/status": lambda: {"queues": {0: 7}}}, lambda: gauge.set(3))
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
