from pathlib import Path

import pytest

from client.errors import ConsumeError
from client.offsets import LocalOffsets
from remoting.bodies import MessageQueue

ONE, TWO = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


async def test_offsets_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "group" / "offsets.json"
    offsets = LocalOffsets(path)
    assert await offsets.load(ONE) is None
    offsets.update(ONE, 5)
    offsets.update(TWO, 7)
    assert await offsets.persist() == []
    again = LocalOffsets(path)
    assert (await again.load(ONE), await again.load(TWO)) == (5, 7)


async def test_the_file_of_the_official_clients_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b'{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:42}}')
    assert await LocalOffsets(path).load(TWO) == 42


async def test_an_offset_goes_back_only_when_reset(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path / "offsets.json")
    offsets.update(ONE, 5)
    offsets.update(ONE, 3)
    assert offsets.noted(ONE) == 5
    offsets.update(ONE, 3, back=True)
    assert offsets.noted(ONE) == 3


async def test_queues_that_others_have_now_keep_their_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalOffsets(path)
    offsets.update(ONE, 5)
    await offsets.persist()
    offsets.forget(ONE)
    offsets.update(TWO, 7)
    await offsets.persist()
    assert await LocalOffsets(path).load(ONE) == 5


async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalOffsets(path)
    offsets.update(ONE, 5)
    await offsets.persist()
    path.unlink()
    await offsets.persist()
    assert not path.exists()


async def test_a_file_that_cannot_be_written_keeps_the_offsets_noted(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    offsets = LocalOffsets(blocked / "offsets.json")
    offsets.update(ONE, 5)
    assert await offsets.persist() == [ONE]
    assert offsets.noted(ONE) == 5


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"{")
    with pytest.raises(ConsumeError, match=r"offsets.json cannot be read .*mend or remove it"):
        await LocalOffsets(path).load(ONE)
