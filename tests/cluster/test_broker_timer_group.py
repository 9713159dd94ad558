"""Timer messages in a Raft group: the next leader goes on where the killed one was, and nothing comes twice."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import RecallMessageRequestHeader
from tests.cluster.broker_peer import v2
from tests.cluster.process_group import leader_of, process_group
from tests.cluster.raft_cluster import CALM, FAST, read_all
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

SETTINGS = {
    **FAST,
    # Until it is killed one leads: every send has to succeed.
    **CALM,
    **SMALL_FILES,
    "timerPrecisionMs": "100",
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": 4 << 20,
}
COUNT = 120


@pytest.mark.timeout(240)
async def test_a_killed_leader_s_timer_messages_come_once_each_and_in_time(tmp_path: Path) -> None:
    with process_group(tmp_path, SETTINGS) as (namesrv, members):
        await leader_of(members)
        due: dict[bytes, float] = {}
        recalled: set[bytes] = set()
        client = RemotingClient()
        for number in range(COUNT):
            # Spread over the time in which the leader is killed; what a follower gets goes on to the leader.
            wait_ms = 1500 + number * 40
            header = v2(properties=f"UNIQ_KEY\x01K{number}\x02TIMER_DELAY_MS\x01{wait_ms}\x02")
            due[b"%d" % number] = time.time() + wait_ms / 1000
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
            answer = await client.invoke(members[number % 3].address, request, 10.0)
            assert answer.code == 0, answer.remark
            if number % 10 == 5:
                # By another member than the one that took it.
                handle = RecallMessageRequestHeader(
                    producerGroup="P", topic="T", recallHandle=answer.ext["recallHandle"]
                )
                request = Command.request(RequestCode.RECALL_MESSAGE, handle)
                answer = await client.invoke(members[(number + 1) % 3].address, request, 10.0)
                # One that is asked for late comes.
                if answer.code == 0:
                    recalled.add(b"%d" % number)
                    del due[b"%d" % number]
        await client.close()
        assert len(recalled) >= COUNT // 20, answer.remark
        await asyncio.sleep(max(0.0, due[b"30"] - time.time()))
        first = await leader_of(members)
        first.kill()
        # A reader's first question is asked once, and its answer waits for a leader no longer than its time-out.
        await leader_of([member for member in members if member is not first])
        await read_all(namesrv.address, "T", len(due))
        first.launch()
        first.wait_ready()
        await asyncio.sleep(1)
        found = await everything(namesrv.address, "T", len(due) + 1, within_s=30)
    counts = Counter(message.body for message in found)
    assert counts == Counter(dict.fromkeys(due, 1))
    assert [message.body for message in found if message.store_timestamp / 1000 < due[message.body] - 0.05] == []
