"""Under which faults sends must go on although the fault lasts: the names for Promises.survives (A25).

What is named hits one member at most, leaves a majority that can talk, and does not come back while it lasts: a Raft
group of three or more elects another leader, or goes on with the one it has. Not named, though one member is hit:

* a leader whose disk is slow or full but answers, and links that are slow or lossy: everything goes on, and how fast
  nobody promised;
* links that come and go, starved processes, and whatever moves the lead again and again;
* faults that a firing ends itself (composites, restarts, transfers): they end within their own steps.
"""

from chaos.host.local import Mode

# One member of a group is down, silent or cut off, whoever it is.
_MINORITY = (
    "kill-leader",
    "kill-follower",
    "kill-minority",
    "pause-leader",
    "pause-follower",
    "power-leader",
    "power-follower",
    "disk-power-leader",
    "disk-power-follower",
    "isolate-leader",
    "isolate-leader-hold",
    "isolate-follower",
    "net-isolate-leader",
    "net-isolate-follower",
    "failing-fsync-follower",
    "failing-fsync-leader",
)
# A follower that is slow or refuses: the leader has its majority in the others.
_FOLLOWER = (
    "slow-fsync-follower",
    "enospc-follower",
    "disk-full-follower",
    "starve-follower",
    "lose-file-follower",
    "rot-follower",
    "rot-running-follower",
)
# A master that waits for nobody serves whatever its slaves do.
_SLAVES = (
    "kill-follower",
    "pause-follower",
    "power-follower",
    "disk-power-follower",
    "isolate-follower",
    "net-isolate-follower",
    "slow-fsync-follower",
    "failing-fsync-follower",
    "enospc-follower",
    "disk-full-follower",
    "starve-follower",
)


def survivable(mode: Mode, nodes: int) -> tuple[str, ...]:
    """Return the names of the faults that a cluster of this kind must serve through.

    A synchronous master with one slave is none of them: without it, it refuses, by contract. With several it has
    another one.
    """
    match mode:
        case "raft" if nodes >= 3:
            return tuple(sorted({*_MINORITY, *_FOLLOWER}))
        case "async" if nodes >= 2:
            return _SLAVES
        case "sync" if nodes >= 3:
            return _SLAVES
        case _:
            return ()
