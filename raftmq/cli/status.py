"""`raftmq cluster status`: what each broker is doing, at 80 columns; with --json all that they tell."""

import asyncio
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import emit, run, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient

COLUMNS = ("broker", "id", "role", "term", "behind", "disk", "in/s", "out/s", "p99 ms")
WIDTH = 80
# So much of a name is shown, that the row of a broker with the longest of everything else still has its 80 columns.
NAME_CHARS_MAX = 17
# Key of what a broker that does not answer has instead of figures.
ERROR = "error"

_ROLES = {"ASYNC_MASTER": "master", "SYNC_MASTER": "master"}
_STEPS = ("", "k", "M", "G", "T")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

Figures = Mapping[str, str]


class Told(NamedTuple):
    """One broker: who it is, and its figures under RocketMQ's names, or why there are none."""

    name: str
    broker_id: int | None
    address: str
    figures: Figures

    @property
    def label(self) -> str:
        """What it is called in a sentence."""
        return f"{self.name}:{self.broker_id}" if self.broker_id is not None else self.name


def status(
    namesrv: Namesrv = DEFAULT_NAMESRV, cluster: Cluster = "", broker: Broker = "", as_json: Json = False
) -> None:
    """Show what each broker is doing: role, term, what it lacks, disk, messages in and out, and how long sends take.

    `behind` is in entries in a Raft group, in bytes for a slave; rates are of the last 10 s, p99 is of the last minute.
    """

    async def work() -> list[Told]:
        async with with_admin(namesrv) as admin:
            if broker:
                return [Told(broker, None, broker, await admin.runtime_info(broker))]
            found = await admin.brokers(cluster or None)
            figures = await asyncio.gather(*(_asked(admin, each.address) for each in found))
        return [Told(each.name, each.broker_id, each.address, told) for each, told in zip(found, figures, strict=True)]

    told = run(work)
    emit(as_json, {each.address: each.figures for each in told}, COLUMNS, rows(told), empty="no broker has registered")
    for line in () if as_json else warnings(told):
        typer.echo(line)


async def _asked(admin: "AdminClient", address: str) -> Figures:
    """Return a broker's figures; one that does not answer keeps nobody from hearing of the others."""
    from client.errors import ClientError
    from remoting.errors import RemotingError

    try:
        return await admin.runtime_info(address)
    except (ClientError, RemotingError) as error:
        return {ERROR: str(error) or type(error).__name__}


def rows(told: Sequence[Told]) -> list[tuple[object, ...]]:
    """Return the table, by name and id; no row is wider than WIDTH."""
    ends: dict[str, int] = {}
    for each in told:
        ends[each.name] = max(ends.get(each.name, 0), _number(each.figures.get("raftLastIndex")))
    ordered = sorted(told, key=lambda each: (each.name, each.broker_id or 0, each.address))
    return [_row(each, ends[each.name]) for each in ordered]


def _row(told: Told, end: int) -> tuple[object, ...]:
    name, figures = _shortened(told.name), told.figures
    if ERROR in figures:
        return name, told.broker_id, "no answer", *[""] * 6
    ratio, p99 = figures.get("commitLogDiskRatio"), _real(figures.get("putLatency99"))
    return (
        name,
        told.broker_id,
        _role(told),
        figures.get("raftTerm") or figures.get("epoch", ""),
        _behind(figures, end),
        f"{_real(ratio):.0%}" if ratio else "",
        _rate(figures.get("putTps")),
        _rate(figures.get("getTransferredTps")),
        f"{p99:.2f}" if 0 < p99 < 1000 else f"{p99:.0f}" if p99 else "",
    )


def _role(told: Told) -> str:
    role = told.figures.get("raftRole") or told.figures.get("brokerRole") or ""
    # RocketMQ's brokers do not tell it.
    return _ROLES.get(role, role.lower()) or ("slave" if told.broker_id else "master")


def _behind(figures: Figures, end: int) -> str:
    """Return what it lacks: entries that the group has and it does not know as committed, or a slave's bytes."""
    if "raftCommitIndex" in figures:
        return _thousands(max(0, end - _number(figures["raftCommitIndex"])))
    lacks = figures.get("masterBehindBytes")
    return _amount(_number(lacks)) if lacks else ""


def warnings(told: Sequence[Told]) -> list[str]:
    """Return what is wrong with brokers, in lines of at most WIDTH columns."""
    said = []
    for each in told:
        for key, text in (
            (ERROR, "does not answer"),
            ("writesRefused", "takes no messages"),
            ("fenced", "is fenced"),
            ("raftClockApart", "must not lead"),
        ):
            if why := each.figures.get(key):
                said += wrap(f"{each.label} {text}: {why}", WIDTH, subsequent_indent="  ")
    return said


def _shortened(name: str) -> str:
    if len(name) <= NAME_CHARS_MAX:
        return name
    half = NAME_CHARS_MAX // 2
    return f"{name[:half]}…{name[-half:]}"


def _rate(text: str | None) -> str:
    """Return the first of some rates: that of the last 10 s."""
    first = (text or "").split(" ")[0]
    return _thousands(_real(first)) if first else ""


def _thousands(value: float) -> str:
    """Return a number in at most five characters."""
    for unit in _STEPS:
        if value < 999.5:
            return f"{value:.0f}" if not unit or value >= 99.95 else f"{value:.1f}{unit}"
        value /= 1000
    return f">1e{3 * len(_STEPS)}"


def _amount(size: float) -> str:
    """Return bytes in at most seven characters."""
    for unit in _BYTES[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} {_BYTES[-1]}"


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


def _real(text: str | None) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0
