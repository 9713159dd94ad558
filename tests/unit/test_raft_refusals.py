"""raft/network/handshake.py: what a connection to the Raft port that never was a link counts as."""

import pytest

from raft.network.handshake import REFUSALS, refusal_kind


@pytest.mark.parametrize(
    ("reason", "given_up", "kind"),
    [
        ("the other side closed it", False, "ended"),
        ("the two sides do not have the same secret (raftSecretFile)", True, "secret"),
        ("no handshake within 3 s", True, "late"),
        ("64 connections are accepted at once", True, "connections"),
        ("what came is no handshake of ours", True, "handshake"),
        ("step hello of the handshake is due, not x", True, "handshake"),
        ("the handshake's field mac is missing or no bytes", True, "handshake"),
        ("a nonce has 32 bytes", True, "handshake"),
        ("a frame of 2130706432 bytes", True, "handshake"),
        ("this is the group g, not h", True, "member"),
        ("this member refuses: another disk", True, "member"),
        ("handshake version 1 is spoken here, not 9", True, "member"),
    ],
)
def test_each_reason_is_counted_as_one_kind(reason: str, given_up: bool, kind: str) -> None:
    assert refusal_kind(reason, given_up=given_up) == kind
    assert kind in REFUSALS
