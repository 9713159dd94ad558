"""The metrics of a master and of a slave: who is how far behind whom."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runtime.figures import Figure, by, gauge


def pair_figures(known: dict[str, Any]) -> Iterator[Figure]:
    """Yield what both have, from what Classic.status() tells."""
    yield gauge("raftmq_ha_epoch", "The epoch, which a promotion raises", known["epoch"])
    yield gauge("raftmq_ha_fenced", "1 for a master in whose place another was promoted", known["fenced"] is not None)
    slaves = list(zip(_names(slave["address"] for slave in known["slaves"]), known["slaves"], strict=True))
    lags = [(name, slave["behind"]) for name, slave in slaves]
    yield by("slave", "gauge", "raftmq_ha_lag_bytes", "Bytes of the log that a slave has not acknowledged", lags)
    rates = [(name, slave["bytesPerSecond"]) for name, slave in slaves]
    yield by("slave", "gauge", "raftmq_ha_sent_bytes_per_second", "What a slave is sent", rates)
    text = "Slaves that are at most haMaxGapNotInSync behind"
    yield gauge("raftmq_ha_slaves_in_sync", text, sum(slave["inSync"] for _, slave in slaves))


def slave_figures(master: dict[str, Any] | None) -> Iterator[Figure]:
    """Yield what a slave knows of its master; without values as long as that is nothing."""
    behind = None if master is None else master["behind"]
    text = "Bytes of its master's log that this slave lacks"
    yield Figure("raftmq_ha_behind_bytes", text, "gauge", [] if behind is None else [((), behind)])


def port_figure(refused: Mapping[str, int]) -> Figure:
    """Return how many were sent away from the HA port."""
    text = "Connections to the HA port that were closed, by reason"
    return by("reason", "counter", "raftmq_ha_links_refused_total", text, refused.items())


def _names(addresses: Iterable[str]) -> list[str]:
    """Name slaves by their hosts, for the ports change with each connection; several of one host by their order."""
    seen: Counter[str] = Counter()
    names = []
    for address in addresses:
        host = address.rpartition(":")[0]
        seen[host] += 1
        names.append(host if seen[host] == 1 else f"{host}#{seen[host]}")
    return names
