"""Plots are pictures: XML that holds its labels, small, the same bytes for the same figures."""

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from raftmq.bench.growthplots import NothingToPlot, plot_rows
from raftmq.bench.plots import bar_plot, line_plot, number_text
from raftmq.cli.main import app

BYTES_MAX = 40 * 1024


def texts(path: Path) -> list[str]:
    """The words of a picture, in order."""
    content = path.read_bytes()
    assert len(content) < BYTES_MAX
    assert not [word for word in (b"script", b"pygal.org", b"Kozea") if word in content]
    return [text.strip() for text in ET.fromstring(content).itertext() if text.strip()]


def grown(of: str, value: int, cost: float, ratio: float, what: str = "sends") -> dict[str, Any]:
    return {"of": of, "value": value, "what": what, "server_cpu_us_per_message": cost, "to_first": ratio}


def rate(system: str, in_flight: int, per_s: int) -> dict[str, Any]:
    return {"system": system, "promise": "disk", "in_flight": in_flight, "body_bytes": 100, "messages_per_s": per_s}


def test_a_line_plot_has_its_labels_and_an_even_place_for_each_power_of_ten(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines.svg"
    line_plot(
        path, "A title", "topics", "µs", {"sends": [(10_000, 30.0), (0, 9.0), (100, 12.0)], "pulls": [(1000, 2.0)]},
        log_x=True,
    )  # fmt: skip
    found = texts(path)
    assert {"A title", "topics", "µs", "sends", "pulls", "0", "100", "1k", "10k", "30"} <= set(found)
    root = ET.fromstring(path.read_bytes())
    dots = [
        float(one.attrib["cx"]) for one in root.iter() if one.tag.endswith("circle") and "dot" in one.attrib["class"]
    ]
    zero, hundred, ten_thousand, thousand = dots
    # 0 stands a power of ten below the lowest.
    assert hundred - zero == pytest.approx(thousand - hundred, abs=0.1)
    assert ten_thousand - thousand == pytest.approx(thousand - hundred, abs=0.1)


def test_a_bar_plot_has_a_bar_for_each_name_in_each_group(tmp_path: Path) -> None:
    path = tmp_path / "bars.svg"
    groups = {"1 in flight": {"one": 10.0, "another": 20.0}, "64 in flight": {"one": 80_000.0}}
    bar_plot(path, "Rates", "messages/s", groups)
    assert {"Rates", "messages/s", "1 in flight", "64 in flight", "one", "another", "80k"} <= set(texts(path))
    bars = [one for one in ET.fromstring(path.read_bytes()).iter() if one.get("class", "").startswith("rect ")]
    assert len(bars) == 3


def test_the_same_figures_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first.svg", "second.svg"):
        line_plot(tmp_path / name, "T", "x", "y", {"a": [(1, 0.0)]})
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


def test_imports_after_it_do_not_warn() -> None:
    assert not [finder for finder in sys.meta_path if not isinstance(finder, type) and not hasattr(finder, "find_spec")]


def test_numbers_at_an_axis_are_short() -> None:
    numbers = (0, 0.5, 2.5, 64, 1000, 1024, 2500, 60_000, 250_000, 1_000_000, 5_000_000)
    words = ["0", "0.5", "2.5", "64", "1k", "1,024", "2.5k", "60k", "250k", "1M", "5M"]
    assert [number_text(number) for number in numbers] == words


def test_saved_lines_become_plots_of_what_grew_and_of_systems_side_by_side(tmp_path: Path) -> None:
    rows = [
        *(grown("queues", value, 10.0 * value, value) for value in (1, 2)),
        grown("backlog", 0, 10.0, 1.0),
        grown("backlog", 100_000, 12.0, 1.2),
        grown("backlog", 0, 2.0, 1.0, "pulls"),
        *(rate("this one", 64, per_s) for per_s in (1_000, 40_000, 41_000)),
        {**rate("this one", 64, 90_000), "again": True},
        {**rate("another", 64, 0), "failed": "it ended"},
        {**rate("another", 64, 30_000), "promise": "page cache"},
        {**rate("this one", 1, 4_000), "body_bytes": 1024},
        {**grown("../backlog", 0, 10.0, 1.0)},
        {"something": "else"},
    ]
    written = plot_rows(rows, tmp_path)
    names = [path.name for path in written]
    assert names == ["growth-queues.svg", "growth-backlog.svg", "growth.svg", "peers-100-64.svg", "peers-1024-1.svg"]
    found = {path.name: texts(path) for path in written}
    assert {"queues", "backlog", "backlog, pulls"} <= set(found["growth.svg"])
    assert {"sends", "pulls", "messages in the topic"} <= set(found["growth-backlog.svg"])
    assert {"this one", "another", "disk", "page cache", "40k", "30k"} <= set(found["peers-100-64.svg"])
    with pytest.raises(NothingToPlot):
        plot_rows([{"something": "else"}], tmp_path)


def test_the_command_draws_saved_lines_and_says_what_is_wrong_with_others(tmp_path: Path) -> None:
    file, svg = tmp_path / "figures.jsonl", tmp_path / "svg"
    command = ["bench", "plot", str(file), "--svg", str(svg)]
    for content, words in (
        ('{"of": ', "line 1 is no JSON"),
        ("[1]\n", "these lines hold no figures of "),
        (
            '{"system": 1, "promise": 1, "in_flight": 1, "body_bytes": "x", "messages_per_s": 1}\n',
            "its figures are not as ",
        ),
    ):
        file.write_text(content)
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 1
        assert words in done.stderr
    file.write_text('{"system": "a", "promise": "p", "in_flight": 1, "body_bytes": 100, "messages_per_s": 1}\n')
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stderr.split()) == (0, [str(svg / "peers-100-1.svg")])
