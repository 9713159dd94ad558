"""Small clusters in which things went wrong at random: in bytes, in what clients were told, in what members said."""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Op
from pipeline.logs.member_files import Vote, encode_vote, read_artefact
from pipeline.plain.replicas import Replicas
from store.files.floorfile import VOTE_NAME
from tests.planted.plant_stores import GROUP, MEMBERS, RAFT, TOPIC, Cluster, build, copied, write_offsets

TEMPLATES = 4
Damage = Callable[[Cluster, random.Random], None]


class Clusters:
    """Makes clusters that are copies of a few built ones, each damaged in its own way."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._built: dict[tuple[str, int], Cluster] = {}
        self._count = 0

    def make(self, kind: str, seed: int) -> Cluster:
        """Return a cluster with up to five things wrong about it, or none."""
        rng = random.Random(seed)
        cluster = self._copied(self._template(kind, rng.randrange(TEMPLATES)))
        damages = [*DAMAGES, *(RAFT_DAMAGES if kind == RAFT else ())]
        for damage in rng.choices(damages, k=rng.choice((0, 1, 1, 2, 3, 5))):
            damage(cluster, rng)
        if rng.random() < 0.15:
            self._give_another_log(cluster, rng)
        return cluster

    def _give_another_log(self, cluster: Cluster, rng: random.Random) -> None:
        """A member has the log of another cluster."""
        member = rng.choice(MEMBERS[cluster.kind])
        other = self._template(cluster.kind, rng.randrange(TEMPLATES))
        shutil.rmtree(cluster.folder(member))
        shutil.copytree(other.folder(member), cluster.folder(member))

    def _copied(self, template: Cluster) -> Cluster:
        self._count += 1
        found = copied(template, self._root / str(self._count))
        return replace(found, ops=list(template.ops), looks=list(template.looks))

    def _template(self, kind: str, number: int) -> Cluster:
        if (kind, number) not in self._built:
            last_on = () if number < TEMPLATES // 2 else MEMBERS[kind][number % 2 :][:1]
            path = self._root / f"{kind}-{number}"
            self._built[kind, number] = build(path, number, kind, last_on=last_on, entries=8)
        return self._built[kind, number]


def replicas_of(cluster: Cluster, seed: int, promises: Promises) -> Replicas:
    """Return the evidence of a cluster, in some cases without one of its members."""
    rng = random.Random(seed)
    found = cluster.replicas()
    faults = [Fault(0, "kill", rng.choice(MEMBERS[cluster.kind]), "any", 0, rng.choice((UNKNOWN, 10**9)), "pid")]
    history = replace(found.history, faults=tuple(faults if rng.random() < 0.4 else ()), promises=promises)
    artefacts = list(found.artefacts)
    if rng.random() < 0.1:
        artefacts.remove(rng.choice(artefacts))
    return Replicas(history, artefacts if rng.random() > 0.02 else [], found.earlier)


def _file(cluster: Cluster, rng: random.Random, pattern: str) -> Path | None:
    found = sorted(cluster.folder(rng.choice(MEMBERS[cluster.kind])).glob(pattern))
    return rng.choice(found) if found else None


def _patched(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _flip(cluster: Cluster, rng: random.Random) -> None:
    path = _file(cluster, rng, "commitlog/*")
    if path is not None and path.stat().st_size:
        at = rng.randrange(path.stat().st_size)
        byte = path.read_bytes()[at]
        _patched(path, at, bytes([byte ^ (1 << rng.randrange(8))]))


def _zero(cluster: Cluster, rng: random.Random) -> None:
    path = _file(cluster, rng, "commitlog/*")
    if path is not None and path.stat().st_size > 600:
        at = rng.randrange(path.stat().st_size - 500)
        _patched(path, at, bytes(rng.randrange(1, 500)))


def _zero_record(cluster: Cluster, rng: random.Random) -> None:
    folder = cluster.folder(rng.choice(MEMBERS[cluster.kind]))
    messages = read_artefact(folder).messages
    row = rng.choice(messages) if messages else None
    for path in sorted((folder / "commitlog").iterdir()) if row is not None else ():
        if row is not None and int(path.name) <= row.position < int(path.name) + path.stat().st_size:
            _patched(path, row.position - int(path.name), bytes(row.size))


def _cut(cluster: Cluster, rng: random.Random) -> None:
    path = max(cluster.folder(rng.choice(MEMBERS[cluster.kind])).glob("commitlog/*"))
    data = path.read_bytes()
    at = rng.randrange(len(data) + 1)
    path.write_bytes(data[:at] + bytes(len(data) - at))


def _no_file(cluster: Cluster, rng: random.Random) -> None:
    paths = sorted(cluster.folder(rng.choice(MEMBERS[cluster.kind])).glob("commitlog/*"))
    if len(paths) > 1:
        rng.choice((paths[0], rng.choice(paths))).unlink()


def _queue_entry(cluster: Cluster, rng: random.Random) -> None:
    path = _file(cluster, rng, "consumequeue/*/*/*")
    if path is not None:
        written = len(path.read_bytes().rstrip(b"\0")) // 20
        if written:
            at = rng.randrange(written) * 20
            _patched(path, at, rng.choice((bytes(20), path.read_bytes()[:20], bytes([rng.randrange(256)]))))


def _queue_cut(cluster: Cluster, rng: random.Random) -> None:
    path = _file(cluster, rng, "consumequeue/*/*/*")
    if path is not None:
        data = path.read_bytes()
        at = len(data.rstrip(b"\0")) // 20 * 20 * rng.randrange(4) // 4 // 20 * 20
        path.write_bytes(data[:at] + bytes(len(data) - at))


def _index(cluster: Cluster, rng: random.Random) -> None:
    path = _file(cluster, rng, "index/*")
    if path is not None:
        at = path.stat().st_size - 400 * 20 + 20 * rng.randrange(1, 40) + rng.choice((3, 11))
        _patched(path, at, bytes([rng.randrange(256)]))


def _offsets(cluster: Cluster, rng: random.Random) -> None:
    folder = cluster.folder(rng.choice(MEMBERS[cluster.kind]))
    name = rng.choice(("consumerOffset.json", "consumerOffset.json", "consumerOffset.json.bak"))
    write_offsets(folder, {0: rng.randrange(30), 1: rng.randrange(30)}, rng.randrange(12), name=name)
    if rng.random() < 0.3:
        commit = {"act": str(Act.COMMIT), "group": GROUP, "topic": TOPIC, "queue": 0, "value": rng.randrange(30)}
        cluster.ops.append(Op(len(cluster.ops), 1, kind=str(Kind.OK), invoked=1, **commit))  # type: ignore[arg-type]


def _told(cluster: Cluster, rng: random.Random) -> None:
    op = rng.choice(cluster.ops)
    other = rng.choice(cluster.ops)
    name = rng.choice(("offset", "position", "queue", "term", "kind", "attempt"))
    values = {"kind": str(Kind.FAIL), "attempt": 1, "term": rng.choice((UNKNOWN, 1, 2, 3))}
    cluster.change(op, **{name: values.get(name, rng.choice((UNKNOWN, getattr(other, name))))})


def _told_twice(cluster: Cluster, rng: random.Random) -> None:
    cluster.ops.append(rng.choice(cluster.ops)._replace(op=len(cluster.ops)))


def _not_told(cluster: Cluster, rng: random.Random) -> None:
    cluster.unanswered(rng.choice(cluster.ops))


def _before(cluster: Cluster, rng: random.Random) -> None:
    root = cluster.root.with_name(f"{cluster.root.name}-{len(cluster.earlier)}")
    cluster.earlier.append(copied(cluster, root))
    rng.choice((_cut, _flip, _vote if cluster.kind == RAFT else _cut))(cluster, rng)


def _look(cluster: Cluster, rng: random.Random) -> None:
    if cluster.looks:
        at = rng.randrange(len(cluster.looks))
        name = rng.choice(("role", "term", "leader", "last", "commit", "durable"))
        value = {"role": "leader", "leader": "n1"}.get(name, rng.randrange(12))
        cluster.looks[at] = cluster.looks[at]._replace(**{name: value})  # type: ignore[arg-type]


def _vote(cluster: Cluster, rng: random.Random) -> None:
    folder = cluster.folder(rng.choice(MEMBERS[cluster.kind]))
    vote = read_artefact(folder).vote
    if vote is None or rng.random() < 0.2:
        (folder / VOTE_NAME).unlink(missing_ok=True)
        return
    made = Vote(rng.choice((1, 2, 3)), rng.choice(("n0", "n1", "", "stranger")), vote.store_id)
    (folder / VOTE_NAME).write_bytes(encode_vote(made)[: rng.choice((80, 80, 80, 40))])


def _floor(cluster: Cluster, rng: random.Random) -> None:
    one, other = rng.sample(MEMBERS[cluster.kind], 2)
    path = cluster.folder(one) / "raft" / "floor"
    if rng.random() < 0.5 and path.exists():
        _patched(path, 0, bytes(path.stat().st_size))
    elif (cluster.folder(other) / "raft" / "floor").exists():
        shutil.copy(cluster.folder(other) / "raft" / "floor", path)


DAMAGES: Sequence[Damage] = (
    _flip, _flip, _zero, _zero_record, _cut, _no_file, _queue_entry, _queue_entry, _queue_cut, _index, _offsets, _told,
    _told, _told_twice, _not_told, _before,
)  # fmt: skip
RAFT_DAMAGES: Sequence[Damage] = (_look, _look, _vote, _floor)
