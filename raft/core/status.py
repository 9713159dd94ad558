"""A member's state for people and machines: what /v1/raft shows."""

from typing import Any

from raft.core.core import Core


def describe(core: Core) -> dict[str, Any]:
    """Return plain values; times are milliseconds ago."""
    log, election, now = core.log, core.election, core.now()
    stood = core.stood
    return {
        "self": core.self_id,
        "group": core.settings.group,
        "group_id": core.config.group_id.hex() if core.config is not None else None,
        "role": election.role.name,
        "term": election.term,
        "leader": election.leader,
        "voted_for": core.votes.voted_for or None,
        "base": log.base.index,
        "last": log.last.index,
        "last_term": log.last.term,
        "end": log.last.end,
        "commit": min(election.commit, core.countable()),
        "applied": core.applied,
        "durable": log.durable,
        "floor": log.floor,
        "full": log.full,
        "refused": log.refused,
        "whole": log.whole,
        "damaged": list(log.damaged) if log.damaged is not None else None,
        "config_index": core.config_index,
        "classic": core.config.classic if core.config is not None else False,
        "members": _members(core),
        "peers": _peers(core),
        "has_quorum": core.has_quorum(),
        "lease_s": core.lease.left(core.config, core.self_id) if core.leads and core.config is not None else 0.0,
        "elections": dict(core.counts),
        "held_back": core.held_back,
        "clock": core.clocks.describe(),
        "last_election": {"ago_ms": _ms(now - stood[0]), "term": stood[1], "why": stood[2]} if stood else None,
    }


def _members(core: Core) -> list[dict[str, Any]]:
    members = core.config.members if core.config is not None else ()
    return [
        {"id": m.id, "address": m.address, "voter": m.voter, "linked": m.id == core.self_id or m.id in core.linked}
        for m in members
    ]


def _peers(core: Core) -> dict[str, dict[str, Any]]:
    """Of a leader: how far each peer is, entries that it lacks on disk, and how old its newest answer's question is."""
    last, now = core.log.last.index, core.now()
    return {
        peer.member: {
            "match": peer.match,
            "next": peer.next,
            "lag": max(0, last - peer.match),
            "probing": peer.probing,
            "bytes_open": peer.bytes_open,
            "room": core.room.has(peer.member),
            "last_ack_ms": _ms(now - peer.answered_at),
        }
        for peer in core.replication.peers.values()
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
