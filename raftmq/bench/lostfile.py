"""A follower of a Raft group has lost a CommitLog file, under load: how long until it is whole, and what it costs."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError, ServerProcess
from raftmq.bench.group import MIB, NODES, SYNC_FLUSH, fill, position
from raftmq.bench.load import Result
from raftmq.bench.suite import send_load
from runtime.gaps import TOLD_SECONDS

WHOLE_TIMEOUT_S = 900.0
ROUND_S = 3.0
LOOK_S = 0.05


async def lost_file(
    file_mib: int,
    body_bytes: int,
    fill_bytes: int,
    fill_in_flight: int,
    load_in_flight: int,
    parent: Path | None = None,
) -> dict[str, Any]:
    """Fill two files and a bit, take the second one from a stopped follower, start it under load, and look on.

    `body_bytes`: of the messages of the load, of which `load_in_flight` are under way at once (0: no load);
    `fill_bytes`: of those that the file is full of; with few of them in flight its entries are small.
    """
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        settings = {"flushDiskType": SYNC_FLUSH, "mappedFileSizeCommitLog": file_mib * MIB}
        cluster = LocalCluster(Path(folder), nodes=NODES, broker_settings=settings)
        cluster.start()
        try:
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            follower = next(broker for broker in cluster.brokers if broker is not leader)
            while position(leader) < (2 * file_mib + max(1, file_mib // 16)) * MIB:
                await fill(leader, max(1, file_mib // 8), fill_bytes, fill_in_flight)
            store = Path(folder) / f"n{cluster.brokers.index(follower)}" / "store"
            load = partial(_load, leader, body_bytes, load_in_flight)
            return await _run(cluster.brokers, leader, follower, store, file_mib, load)
        finally:
            cluster.kill()


async def _run(
    brokers: list[ServerProcess],
    leader: ServerProcess,
    follower: ServerProcess,
    store: Path,
    file_mib: int,
    send: Callable[[Callable[[], bool]], Coroutine[Any, Any, list[Result]]],
) -> dict[str, Any]:
    filled = _state(leader)
    before = await send(lambda: True)
    await asyncio.to_thread(follower.stop)
    lost = store / "commitlog" / f"{file_mib * MIB:020d}"
    await asyncio.to_thread(lost.unlink)
    began_with, held_up = _state(leader), _gaps(leader)
    whole = asyncio.Event()
    load = asyncio.create_task(send(whole.is_set))
    began = time.monotonic()
    await asyncio.to_thread(follower.launch)
    try:
        watched = await _watch(follower, began)
    finally:
        whole.set()
        during = await load
    state = _state(leader)
    server = next((broker for broker in brokers if _self_id(broker) == watched["from"]), leader)
    since = watched["began_at"]
    return {
        "bytes_of_an_entry": round(filled["end"] / filled["last"]),
        "file_mib": file_mib,
        "repaired_mib": round(watched["bytes"] / MIB, 1),
        "seconds_until_whole": round(watched["whole_s"], 1),
        "seconds_until_dispatched": round(watched["dispatched_s"], 1),
        "seconds_of_repair": round(watched["repair_s"], 1),
        "mib_per_s": round(watched["bytes"] / MIB / max(watched["repair_s"], LOOK_S), 1),
        "elections": state["term"] - began_with["term"],
        "same_leader": state["leader"] == began_with["leader"],
        "loop_gap_max_ms_of_the_repaired": _gap_ms(follower, since),
        "loop_gap_max_ms_of_who_served_it": _gap_ms(server, since),
        "it_was_the_leader": server is leader,
        "loop_gap_max_ms_of_the_leader": _gap_ms(leader, since),
        "loop_gaps_over_50_ms_of_the_leader": _gaps(leader)["over50Ms"] - held_up["over50Ms"],
        **_summed("before", before),
        **_summed("during", during),
    }


async def _watch(follower: ServerProcess, began: float) -> dict[str, Any]:
    """Look at the follower until it is whole, and has dispatched what stands behind what was damaged."""
    found: dict[str, Any] = {}
    until = 0
    while True:
        state = await asyncio.to_thread(follower.state, "/v1/raft")
        now = time.monotonic()
        if state is not None and not found and state["whole"] and state["last_repair"] is not None:
            last = state["last_repair"]
            until = state["last"]
            found = {
                "bytes": last["bytes"], "repair_s": last["ms"] / 1000, "whole_s": now - began, "from": last["from"],
                "began_at": time.time() * 1000 - last["ms"] - 2 * LOOK_S * 1000,
            }  # fmt: skip
        if state is not None and found and state["applied"] >= until:
            return found | {"dispatched_s": now - began}
        if now - began > WHOLE_TIMEOUT_S:
            raise ProcessError(f"the follower is not whole after {WHOLE_TIMEOUT_S:g} s: {state}")
        await asyncio.sleep(LOOK_S)


async def _load(leader: ServerProcess, body_bytes: int, in_flight: int, enough: Callable[[], bool]) -> list[Result]:
    """Send, in rounds of some seconds, until it is enough; at least one, and none when nothing is to be in flight."""
    rounds: list[Result] = []
    while in_flight and (not rounds or not enough()):
        rounds.append(await send_load(leader.address, in_flight=in_flight, size=body_bytes, seconds=ROUND_S))
    return rounds


def _summed(when: str, rounds: list[Result]) -> dict[str, Any]:
    """Sum up rounds, if any: the median of their rates and medians, the worst of their p99 and maxima."""
    if not rounds:
        return {}
    return {
        f"sends_per_s_{when}": round(statistics.median(each.messages_per_s for each in rounds)),
        f"send_p50_ms_{when}": round(statistics.median(each.p50_ms for each in rounds), 2),
        f"send_p99_ms_{when}": round(max(each.p99_ms for each in rounds), 2),
        f"send_max_ms_{when}": round(max(each.max_ms for each in rounds), 2),
        f"send_errors_{when}": sum(sum(each.errors.values()) for each in rounds),
    }


def _self_id(broker: ServerProcess) -> str:
    return str(_state(broker)["self"])


def _gaps(broker: ServerProcess) -> dict[str, Any]:
    gaps: dict[str, Any] = _state(broker, "/v1/status")["loopGaps"]
    return gaps


def _gap_ms(broker: ServerProcess, since_ms: float) -> float:
    """Return the longest of a member's loop from a moment on; one of up to TOLD_SECONDS is not told."""
    return max((gap["ms"] for gap in _gaps(broker)["last"] if gap["at"] >= since_ms), default=TOLD_SECONDS * 1000)


def _state(broker: ServerProcess, path: str = "/v1/raft") -> dict[str, Any]:
    state = broker.state(path)
    if state is None:
        raise ProcessError(f"{broker.name} does not answer")
    found: dict[str, Any] = state
    return found
