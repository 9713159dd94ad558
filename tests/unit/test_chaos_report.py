"""Reports made of run folders: what they hold, how they stand up to hostile texts, what they are at the limits."""

from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from chaos.report.facts import BUCKETS, POINTS_MAX, Facts, gather, spread
from chaos.report.html import Html, printable, tag
from chaos.report.report import write_report, write_suite
from chaos.report.run import NotRun, Reported, ReportError
from chaos.report.svg import panels
from chaos.report.text import sentence, summary
from chaos.report.witness import hex_dump, stored_at
from pipeline.history.results import Finding, Results, Verdict
from pipeline.history.rows import Act, Fault, Kind, Look, Op
from remoting.record import encode_record
from tests.parts.chaos_runs import FAULTS, HOSTILE, LOAD_S, START, S, looks, operations, write_run

VOID = {"meta"}


class Reader(HTMLParser):
    """Reads a page: its elements, its words, and whether every element is closed where it must be."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.targets: set[str] = set()
        self.links: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for key, value in attrs:
            assert not key.startswith("on"), f"{key} would run"
            if key == "id":
                self.targets.add(value or "")
            if key in {"href", "src"}:
                self.links.append(value or "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return reader


def made(folder: Path, verdict: Verdict = Verdict.VALID) -> Reported:
    folder.mkdir(exist_ok=True)
    return write_report(write_run(folder, verdict))


def op(number: int, at_ms: int, took_ms: int, kind: Kind = Kind.OK) -> Op:
    begun = START + at_ms * 1_000_000
    return Op(
        number, 0, Act.SEND, kind, begun, begun + took_ms * 1_000_000, topic="t", queue=0, writer=0, counter=number
    )


def test_report_says_verdict_numbers_and_commands(tmp_path: Path) -> None:
    made(tmp_path)
    page = read(tmp_path / "report.html")
    words = " ".join(page.words)
    assert "✓ Valid" in words
    assert "5,146" in words
    assert "raftmq chaos run kill-leader --seed 7 --schedule schedule.json" in words
    assert "raftmq chaos recheck ." in words
    assert "pid 4101 is gone, started again as 4190" in words
    assert "0. kill-leader" in words, "numbered as in witnesses and results.json"
    assert "unshare: operation not permitted" in words
    assert "5,021 of 1,000 asked" in words


def test_report_is_one_file_that_runs_and_fetches_nothing(tmp_path: Path) -> None:
    made(tmp_path, Verdict.INVALID)
    page = read(tmp_path / "report.html")
    assert not {"script", "img", "link", "iframe", "object", "form", "base"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= page.targets
    text = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text
    assert len(text) < 1_000_000


def test_witness_is_shown_whole_and_escaped_with_what_stands_around_it(tmp_path: Path) -> None:
    made(tmp_path, Verdict.INVALID)
    page = read(tmp_path / "report.html")
    words = " ".join(page.words)
    assert "A1 acknowledged, and lost: 3 (in the middle)" in words
    assert "<script>console.error('broken out')</script>" in words
    assert "\\u202e\\x1b[31m" in words
    assert not {"\u202e", "\x1b"} & set(words)
    assert "3000 send" in words
    assert "3. isolate-leader (n1)" in words
    before, after = words.index("2989 send"), words.index("3002 send")
    assert before < words.index("3000 send") < after


def test_suite_links_to_each_report_and_shows_what_did_not_run(tmp_path: Path) -> None:
    runs = [made(tmp_path / "one"), made(tmp_path / "two", Verdict.UNKNOWN)]
    write_suite(tmp_path, runs, [NotRun("clocks", "libfaketime is not installed")])
    page = read(tmp_path / "report.html")
    assert page.links == ["one/report.html", "two/report.html"]
    words = " ".join(page.words)
    assert "? Unknown" in words
    assert "libfaketime is not installed" in words


def test_summary_is_markdown_whose_table_cannot_be_broken(tmp_path: Path) -> None:
    run = made(tmp_path, Verdict.INVALID)
    text = (tmp_path / "summary.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {9}
    assert "❌ raftmq chaos: invalid" in text
    assert "<script>" not in text
    assert "raftmq chaos recheck ." in text
    hostile = summary([run], [NotRun(HOSTILE, HOSTILE)])
    assert "\\|" in hostile
    assert "<img" not in hostile


def test_sentence_says_why(tmp_path: Path) -> None:
    assert sentence(made(tmp_path)).startswith(
        "VALID kill-leader (seed 7): all 39 checks that were judged hold; 5,146 of"
    )
    bad = sentence(made(tmp_path, Verdict.INVALID))
    assert bad.startswith("INVALID kill-leader (seed 7): A1 acknowledged, and lost: 3 (in the middle), and 1 more;")
    assert "\n" not in bad


def test_a_secured_run_is_called_so_and_a_plain_one_is_not(tmp_path: Path) -> None:
    plain = made(tmp_path)
    info = orjson.loads((tmp_path / "run.json").read_bytes())
    (tmp_path / "run.json").write_bytes(orjson.dumps({**info, "secured": {"in the end": {"refused": ["n0"]}}}))
    run = write_report(tmp_path)
    assert (plain.secured, run.secured) == (False, True)
    assert sentence(run).startswith("VALID kill-leader (seed 7, secured): all 39 checks")
    assert "kill-leader, seed 7, secured" in " ".join(read(tmp_path / "report.html").words)
    assert "kill-leader (secured)" in summary([run]).replace("\\", "")
    assert 'name="secured" value="true"' in (tmp_path / "junit.xml").read_text()
    assert "secured" not in sentence(plain) + summary([plain])


def test_nothing_judged_is_not_valid(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = (Finding("A1", "lost", Verdict.SKIPPED),)
    (tmp_path / "results.json").write_bytes(orjson.dumps(Results(found).as_dict()))
    assert "UNKNOWN kill-leader (seed 7): nothing was judged" in sentence(write_report(tmp_path))


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "recheck"), (b"{", "is no JSON"), (b'{"schema": 99, "findings": []}', "schema 99")],
)
def test_results_that_cannot_be_used_are_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    write_run(tmp_path)
    (tmp_path / "results.json").unlink()
    if content is not None:
        (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(ReportError, match=words):
        write_report(tmp_path)


def test_empty_history_has_a_report(tmp_path: Path) -> None:
    facts = gather([], [], [], [])
    assert facts.silence_s == 0
    assert "Latency of sends" in panels(facts)


def facts_of_a_run(count: int = 6_000) -> Facts:
    ops, reads = operations(7, count)
    faults = [
        Fault(n, f[2], f[3], f[4], START + round(f[0] * S), START + round(f[1] * S)) for n, f in enumerate(FAULTS)
    ]
    return gather(ops, reads, faults, looks())


def test_facts_count_every_send_once() -> None:
    facts = facts_of_a_run()
    assert sum(b.ok + b.info + b.fail for b in facts.buckets) == 6_000
    assert facts.counts[Act.SEND] == {"ok": 5_146, "info": 406, "fail": 448}
    assert len(facts.buckets) == BUCKETS
    assert len(facts.points) <= POINTS_MAX
    slowest = max(ms for _, ms, kind in facts.points if kind == Kind.OK)
    ops, _ = operations(7)
    assert slowest == max((o.completed - o.invoked) / 1e6 for o in ops if o.act == Act.SEND and o.kind == Kind.OK)


def test_drawings_do_not_grow_with_the_history() -> None:
    small, large = (len(panels(facts_of_a_run(count))) for count in (6_000, 24_000))
    assert large < 1.5 * small


def test_silences_are_told_for_the_faults_that_they_touch() -> None:
    facts = facts_of_a_run()
    by_name = {band.fault.name: band.silence_s for band in facts.bands}
    assert by_name["power-loss-all"] == pytest.approx(4.2, abs=0.1)
    assert by_name["kill-leader"] == pytest.approx(1.1, abs=0.1)
    assert by_name["pause-follower"] == pytest.approx(0, abs=0.2)
    assert facts.silence_s == by_name["power-loss-all"]


def test_gap_before_a_fault_is_not_the_faults() -> None:
    ops = [op(0, 0, 10), op(1, 5_000, 10), op(2, 6_000, 10), op(3, 8_000, 10)]
    fault = Fault(0, "kill", "n0", "leader", START + 6 * S, START + 7 * S)
    assert gather(ops, [], [fault], []).bands[0].silence_s == pytest.approx(2.0)


def test_lanes_show_terms_and_silence() -> None:
    facts = facts_of_a_run()
    reigns = [(member, s.term) for member, spans in facts.lanes.items() for s in spans if s.leads]
    assert ("n1", 2) in reigns
    assert ("n0", 6) in reigns
    assert facts.leader_changes == 3, "n2 led terms 4 and 5, one after the other"
    first, second = facts.lanes["n0"][:2]
    assert first.leads
    assert first.end == pytest.approx(4.8)
    assert second.start == pytest.approx(8.0)
    assert all(span.end <= LOAD_S for spans in facts.lanes.values() for span in spans)


def test_what_is_not_yet_read_ends_at_what_was_lost() -> None:
    ops, reads = operations(7)
    lost = [read for read in reads if read.offset != 700]
    assert gather(ops, reads, [], []).unseen[-1][1] == 0
    assert gather(ops, lost, [], []).unseen[-1][1] == len(reads) - len(lost) > 0


def test_silent_member_begins_a_new_span() -> None:
    seen = [Look(START + at * S, "n0", "leader", 3, "n0", 1, 1, 1, 1) for at in (0, 1, 2, 9, 10)]
    spans = gather([], [], [], seen).lanes["n0"]
    assert [(span.start, span.end) for span in spans] == [(0, 2), (9, 10)]


def test_spread_keeps_both_ends() -> None:
    assert spread(range(1_000), 5) == [0, 250, 500, 749, 999]
    assert spread([1, 2], 5) == [1, 2]


def test_text_is_escaped_markup_is_not() -> None:
    assert tag("p", "<b>", Html("<i></i>"), class_='"x"') == '<p class="&quot;x&quot;">&lt;b&gt;<i></i></p>'
    assert tag("a", None, hidden=True, id_=None, data_label=5) == '<a hidden data-label="5"></a>'
    assert printable("a\u202eb\x00\udcffé\n") == "a\\u202eb\\x00\\udcffé\n"


def test_hex_dump_is_readable() -> None:
    assert hex_dump(b"RaftMQ\x00\xff" * 2 + b"!", 4096).splitlines() == [
        "        4096  52 61 66 74 4d 51 00 ff 52 61 66 74 4d 51 00 ff  RaftMQ..RaftMQ..",
        "        4112  21                                               !",
    ]


def test_witness_shows_what_each_replica_holds_and_who_differs(tmp_path: Path) -> None:
    write_run(tmp_path, Verdict.INVALID)
    for member, body in (("n0", b"<b>right"), ("n1", b"<b>wrong"), ("n2", b"<b>right")):
        log = tmp_path / "data" / member / "commitlog"
        log.mkdir(parents=True)
        first = encode_record("orders", 1, b"before" * 23, queue_offset=699)
        second = encode_record("orders", 1, body, queue_offset=700, physical_offset=len(first))
        (log / "00000000000000000000").write_bytes((first + second).ljust(4096, b"\0"))
    results = Results((Finding("A8", "two", Verdict.INVALID, 1, "", ({"position": len(first)},)),))
    (tmp_path / "results.json").write_bytes(orjson.dumps(results.as_dict()))
    write_report(tmp_path)
    words = " ".join(read(tmp_path / "report.html").words)
    assert "n0, n2   orders:1@700, 8 bytes: <b>right" in words
    assert "n1   orders:1@700, 8 bytes: <b>wrong" in words
    assert hex_dump(second[:16], len(first)).strip() in words


def test_folder_without_a_log_is_told(tmp_path: Path) -> None:
    words, dump = stored_at(tmp_path / "nowhere", 0)
    assert "cannot be read" in words
    assert not dump
