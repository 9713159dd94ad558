"""raft/protocol/settings.py: what a member cannot live by is refused by name before it starts."""

import dataclasses
from typing import Any

import pytest

from raft.protocol.settings import Peer, RaftSettings, parse_peers
from runtime.config import ConfigError

PEERS = parse_peers("n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913")
GOOD = RaftSettings("n0", "RaftNode00", PEERS)


def test_peers_are_read_as_rocketmq_writes_them() -> None:
    assert parse_peers(" n0-broker-a.example:40911 ; n12-[::1]:40912; ") == (
        Peer("n0", "broker-a.example", 40911),
        Peer("n12", "::1", 40912),
    )
    assert [peer.address for peer in parse_peers("n0-10.0.0.1:1;n1-[fe80::1]:65535")] == [
        "10.0.0.1:1",
        "[fe80::1]:65535",
    ]
    assert parse_peers("") == ()


@pytest.mark.parametrize(
    "text", ["n0", "n0-host", "n0-host:0", "n0-host:65536", "n0-host:x", "-host:1", "m0-host:1", "n01-host:1", "n0-:1"]
)
def test_peers_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"dLegerPeers.*takes"):
        parse_peers(text)


def test_the_defaults_are_valid_and_their_spans_fit_each_other() -> None:
    GOOD.validate()
    assert GOOD.own == Peer("n0", "127.0.0.1", 40911)
    assert GOOD.lease_s == pytest.approx(0.4)
    assert GOOD.quorum_s == pytest.approx(1.5)
    assert GOOD.lease_s * 1000 < GOOD.election_ms_min


@pytest.mark.parametrize("count", [1, 3, 5])
def test_groups_of_one_three_and_five(count: int) -> None:
    peers = tuple(Peer(f"n{i}", "127.0.0.1", 40911 + i) for i in range(count))
    dataclasses.replace(GOOD, peers=peers).validate()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group": ""}, "dLegerGroup"),
        ({"group": "a b"}, "dLegerGroup"),
        ({"group": "g" * 128}, "dLegerGroup"),
        ({"self_id": "n3"}, "dLegerSelfId is 'n3'.*n0, n1, n2"),
        ({"self_id": "broker-a"}, "no member id"),
        ({"peers": ()}, "names 0 members"),
        ({"peers": tuple(Peer(f"n{i}", "h", i + 1) for i in range(10))}, "names 10 members"),
        ({"peers": (Peer("n0", "a", 1), Peer("n0", "b", 2))}, "names a member twice"),
        ({"peers": (Peer("n0", "a", 1), Peer("n1", "a", 1))}, "one address to two"),
        ({"peers": (Peer("n0", "a b", 1),)}, "no address"),
        ({"heartbeat_ms": 0}, "raftHeartbeatMs is 0"),
        ({"heartbeat_ms": 167}, "raftHeartbeatMs is 167.*3 times"),
        ({"election_ms_min": 1000}, "raftElectionMsMax is 1000.*above"),
        ({"election_ms_max": 600_001}, "raftElectionMsMax is 600001: it takes"),
        ({"window_bytes": 1024 * 1024 - 1}, "less than one append"),
        ({"ae_bytes_max": 9 * 1024 * 1024}, "ae_bytes_max"),
        ({"proposals_max": 0}, "proposals_max"),
        ({"transfer_ms": 0}, "transfer_ms"),
        ({"catch_up_entries": -1}, "catch_up_entries"),
        ({"preferred_leader": "leader"}, "preferredLeaderId"),
    ],
)
def test_what_a_member_cannot_live_by_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        dataclasses.replace(GOOD, **change).validate()
