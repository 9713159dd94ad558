"""report.html in a real headless Chromium, as a desk and as a phone show it."""

from pathlib import Path

import pytest

from chaos.report.report import write_report
from pipeline.history.results import Verdict
from tests.chaos.browser import browser, find_chromium
from tests.parts.chaos_runs import write_run

WORDS = {Verdict.VALID: "✓ Valid", Verdict.INVALID: "✗ Invalid", Verdict.UNKNOWN: "? Unknown"}
# Where the verdict lies, and whether anything covers it.
SHOWN = """(() => {
  const verdict = document.getElementById("verdict"), box = verdict.getBoundingClientRect();
  const top = document.elementFromPoint(box.left + box.width / 4, box.top + box.height / 2);
  return {text: verdict.innerText, seen: top === verdict, low: box.bottom, wide: document.documentElement.scrollWidth,
          drawings: document.querySelectorAll("svg").length};
})()"""


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1200, False)])
@pytest.mark.parametrize("verdict", WORDS)
async def test_report_shows_its_verdict_and_complains_of_nothing(
    tmp_path: Path, verdict: Verdict, width: int, dark: bool
) -> None:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium here: `apt-get install chromium`, and this test opens the report in it")
    write_report(write_run(tmp_path, verdict))
    async with browser(binary) as page:
        await page.open(tmp_path / "report.html", width, dark=dark)
        shown = await page.evaluate(SHOWN)
        await page.picture(tmp_path / "report.png")
        complaints, requests = page.complaints, page.requests
    assert complaints == []
    assert requests == [(tmp_path / "report.html").as_uri()]
    assert shown["text"] == WORDS[verdict]
    assert shown["seen"]
    assert shown["low"] < 300
    assert shown["wide"] <= width, "the page would have to be scrolled sideways"
    assert shown["drawings"] == 7
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report.png").stat().st_size > 50_000


async def test_browser_would_tell_of_a_page_that_complains(tmp_path: Path) -> None:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no Chromium here: `apt-get install chromium`")
    (tmp_path / "bad.html").write_text(
        "<h1 id=verdict>x</h1><script>console.error('broken')</script><img src=none.png>"
    )
    async with browser(binary) as page:
        await page.open(tmp_path / "bad.html", 1200)
        complaints, requests = page.complaints, page.requests
    assert any("broken" in complaint for complaint in complaints)
    assert len(requests) == 2
