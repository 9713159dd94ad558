"""A18, A21: transactions, from sends and reads that carry a transaction's name."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.history.catalogue import finding, skipped
from pipeline.history.results import Finding
from pipeline.history.rows import Act, Kind, Op
from pipeline.plain.evidence import NEVER, History

Witness = dict[str, Any]


@dataclass
class _Transaction:
    sends: list[Op] = field(default_factory=list)
    commits: list[Op] = field(default_factory=list)
    """Those that may have happened."""
    rollbacks: list[Op] = field(default_factory=list)
    checks: list[Op] = field(default_factory=list)
    reads: list[Op] = field(default_factory=list)
    """Answers that brought a message of it."""
    seen: set[tuple[int, int]] = field(default_factory=set)


def check_a18(history: History) -> Finding:
    """Judge transactions as units.

    Violated by a transaction of which a message is read
    * by an answer that came before any commit of it was invoked, or though none was, or
    * though its rollback was acknowledged;
    by one whose commit was acknowledged, and that a leader's complete scan, asked later (by delay_bound_s), does not
    bring; by one of which a scan brings a part, while another of its queues was scanned in whole without bringing the
    rest; by one whose commit and rollback were both acknowledged; and by a question for its end that came after
    that had been acknowledged. One without an end is counted in the text.
    """
    transactions = _transactions(history)
    if not transactions:
        return skipped("A18", "there were no transactions")
    found = [witness for name, one in transactions.items() for witness in _judge(history, name, one)]
    open_ones = sum(1 for one in transactions.values() if not one.commits and not one.rollbacks)
    text = f"{open_ones:,} of {len(transactions):,} have no end" if open_ones else ""
    return finding("A18", found, judged=not history.lossy, text=text)


def check_a21(history: History) -> Finding:
    """Judge that transactions can be put in one order.

    One comes before another if it wrote the message before the other's in a queue (ww), or wrote what the other read
    (wr); of two that are told for one place, the one of the smaller name stands there. Violated by a circle, counted by
    strongly connected parts; its witness is a shortest circle of a part.
    """
    edges = _edges(history)
    if not edges:
        return skipped("A21", "no two transactions touch the same queue")
    circles = ({"ops": [], "transactions": shortest_circle(edges, part)} for part in sorted(knots(edges), key=min))
    return finding("A21", circles, judged=history.promises.isolated_transactions)


def _transactions(history: History) -> dict[str, _Transaction]:
    found: dict[str, _Transaction] = {}
    for op in history.ops:
        # A poll's transaction is the reader's own: see A21.
        if not op.transaction or op.kind == Kind.FAIL:
            continue
        one = found.setdefault(op.transaction, _Transaction())
        if op.act == Act.SEND:
            one.sends.append(op)
        elif op.act == Act.END_COMMIT:
            one.commits.append(op)
        elif op.act == Act.END_ROLLBACK:
            one.rollbacks.append(op)
        elif op.act == Act.CHECK:
            one.checks.append(op)
    for op, read, sent in history.special_sights:
        if sent.transaction in found:
            found[sent.transaction].reads.append(op)
            found[sent.transaction].seen.add((read.writer, read.counter))
    return {name: one for name, one in found.items() if one.sends}


def _judge(history: History, name: str, one: _Transaction) -> Iterator[Witness]:
    begun = min((op.invoked for op in one.commits), default=NEVER)
    committed = [op for op in one.commits if op.kind == Kind.OK]
    rolled_back = [op for op in one.rollbacks if op.kind == Kind.OK]
    for op in one.reads:
        if op.kind == Kind.OK and op.completed < begun:
            yield _witness(name, "visible before its commit" if one.commits else "visible without a commit", op)
            break
    if one.reads and rolled_back and one.commits:
        yield _witness(name, "visible after its rollback", rolled_back[0], one.reads[0])
    if committed and rolled_back:
        yield _witness(name, "committed and rolled back", committed[0], rolled_back[0])
    since = min((op.completed for op in (*committed, *rolled_back)), default=NEVER)
    if late := [op for op in one.checks if op.invoked > since]:
        yield _witness(name, "asked for after its end", late[0])
    visible_since = min((op.completed for op in one.reads if op.kind == Kind.OK), default=NEVER)
    settled = min((op.completed for op in committed), default=NEVER)
    for op in one.sends:
        if op.kind != Kind.OK or (op.writer, op.counter) in one.seen:
            continue
        if _missing(history, op, settled):
            yield _witness(name, "committed, and never visible", op, *committed[:1])
            break
        if _missing(history, op, visible_since):
            yield _witness(name, "visible in part", op, *one.reads[:1])
            break


def _missing(history: History, op: Op, since: int) -> bool:
    """Return whether a leader's scan of all of a send's queue, begun well after `since`, would have brought it."""
    due = since + int(history.promises.delay_bound_s * 1e9)
    some = history.readers.get(history.queue_of(op), ())
    return any(reader.complete and reader.leader and reader.began > due for reader in some)


def _witness(name: str, why: str, *ops: Op) -> Witness:
    return {"ops": [op.op for op in ops], "transaction": name, "why": why}


def _edges(history: History) -> dict[str, set[str]]:
    """Return which transactions come directly after each."""
    edges: dict[str, set[str]] = {}

    def before(one: str, other: str) -> None:
        if one and other and one != other:
            edges.setdefault(one, set()).add(other)
            edges.setdefault(other, set())

    placed: dict[tuple[str, str, int], dict[int, str]] = {}
    for op, read, sent in history.special_sights:
        if sent.transaction:
            offsets = placed.setdefault(history.queue_of_read(op, read), {})
            offsets[read.offset] = min(sent.transaction, offsets.get(read.offset, sent.transaction))
            before(sent.transaction, op.transaction)
    for row in history.held:
        half = history.attempts.get((row.writer, row.counter, row.attempt))
        if half is not None and half.transaction:
            offsets = placed.setdefault(history.queue_of_held(row), {})
            offsets[row.offset] = min(half.transaction, offsets.get(row.offset, half.transaction))
    for offsets in placed.values():
        last = ""
        for _, name in sorted(offsets.items()):
            before(last, name)
            last = name
    return edges


def knots(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected parts of more than one node (Tarjan's, with a stack of its own)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    for root in sorted(edges):
        if root in number:
            continue
        work = [(root, iter(sorted(edges[root])))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        waiting.add(root)
        while work:
            node, following = work[-1]
            fresh = None
            for one in following:
                if one not in number:
                    fresh = one
                    break
                if one in waiting:
                    lowest[node] = min(lowest[node], number[one])
            if fresh is not None:
                number[fresh] = lowest[fresh] = len(number)
                stack.append(fresh)
                waiting.add(fresh)
                work.append((fresh, iter(sorted(edges[fresh]))))
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
            if lowest[node] == number[node]:
                part = [stack.pop()]
                while part[-1] != node:
                    part.append(stack.pop())
                waiting.difference_update(part)
                if len(part) > 1:
                    yield part


def shortest_circle(edges: Mapping[str, set[str]], part: list[str]) -> list[str]:
    """Return a shortest circle through a part's first node, that node at both ends."""
    inside, start = set(part), min(part)
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in sorted(edges[node] & inside):
            if following == start:
                way = [start, node]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if following not in came_from:
                came_from[following] = node
                queue.append(following)
    raise AssertionError("a strongly connected part has a circle through each of its nodes")
