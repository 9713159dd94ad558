"""known_slaves.py: which slaves a master has had, over restarts, whatever strangers tell."""

import asyncio
from pathlib import Path

import orjson
import pytest

from broker.master_slave import known_slaves
from broker.master_slave.known_slaves import ADDRESS_LENGTH_MAX, SLAVES_MAX, KnownSlaves

FIRST, SECOND = "10.0.0.4:10911", "10.0.0.5:10911"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_slaves, "WRITE_SECONDS", 0.0)


def loaded(root: Path) -> KnownSlaves:
    slaves = KnownSlaves(root)
    slaves.load()
    return slaves


async def kept(root: Path, *expected: str) -> None:
    """Wait until the file names these."""
    path, content = root / known_slaves.NAME, orjson.dumps({"slaves": expected})
    async with asyncio.timeout(20):
        while not path.exists() or path.read_bytes() != content:
            await asyncio.sleep(0.001)


async def test_slaves_are_known_over_restarts(tmp_path: Path) -> None:
    slaves = loaded(tmp_path)
    for _ in range(3):
        slaves.heard(FIRST)
    slaves.heard(SECOND)
    await kept(tmp_path, FIRST, SECOND)
    await slaves.close()
    again = loaded(tmp_path)
    assert FIRST in again
    assert SECOND in again
    assert "10.0.0.6:10911" not in again
    # Whom it knows costs no write.
    again.heard(FIRST)
    assert not again._writing


async def test_what_strangers_call_themselves_is_bounded(tmp_path: Path) -> None:
    slaves = loaded(tmp_path)
    for number in range(2 * SLAVES_MAX):
        slaves.heard(f"10.0.1.{number}:10911")
        # It asks every few seconds.
        slaves.heard(FIRST)
    slaves.heard("")
    slaves.heard("x" * (ADDRESS_LENGTH_MAX + 1))
    assert FIRST in slaves
    assert "10.0.1.0:10911" not in slaves
    assert "" not in slaves
    await kept(tmp_path, *(f"10.0.1.{2 * SLAVES_MAX - count}:10911" for count in range(SLAVES_MAX - 1, 0, -1)), FIRST)
    await slaves.close()


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"slaves": [1]}', b"[]"])
async def test_a_file_that_cannot_be_used_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / known_slaves.NAME
    path.parent.mkdir()
    path.write_bytes(content)
    slaves = loaded(tmp_path)
    assert FIRST not in slaves
    assert "the slaves of before are not known" in caplog.text
    slaves.heard(FIRST)
    await kept(tmp_path, FIRST)
    await slaves.close()


async def test_what_cannot_be_written_is_said_and_known_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config").write_text("in the way")
    slaves = KnownSlaves(tmp_path)
    slaves.heard(FIRST)
    async with asyncio.timeout(20):
        while slaves._writing:
            await asyncio.sleep(0.001)
    assert "which slaves there are cannot be kept" in caplog.text
    assert FIRST in slaves
    await slaves.close()
