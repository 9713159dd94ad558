# Types of hotpath.pyx. The last two are added to it when it is compiled (setup/compile.py).

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

class SendRows:
    data: bytes
    topics: list[str]
    queues_max: list[int]
    body_bytes: int
    body_max: int
    properties_bytes: int
    properties_max: int
    sys_flags: int

    def __len__(self) -> int: ...
    def frames(self) -> list[tuple[bytes, bytes]]: ...
    def places(self) -> list[tuple[str, int, str]]: ...
    def placed(self) -> list[tuple[int, int]]: ...
    def fields(self, suffix: bytes) -> list[tuple[str, int, int, int, int, bytes, bytes]]: ...
    def place(
        self,
        dispatched_type: type[_T],
        named: list[tuple[int, bytes]],
        sys_flags: list[int],
        born_host: bytes,
        store_host: bytes,
        suffix: bytes,
        next_offsets: dict[tuple[str, int], int],
        next_offset: Callable[[str, int], int],
        end: int,
        timestamp: int,
        crc32: Callable[[Any], int],
    ) -> tuple[bytes, list[_T]]: ...
    def answers(self, pieces: tuple[bytes, ...]) -> bytes: ...

class PullRows:
    data: bytes
    asked: list[tuple[tuple[str, str, str | None, str | None], int, int, int, int, int, int, int, int, int]]

    def __len__(self) -> int: ...
    def frame(self, number: int) -> tuple[bytes, bytes]: ...

def cut_pulls(data: bytes, at: int, most: int, limit: int) -> PullRows | None: ...
def cut_sends(data: bytes, at: int, most: int, limit: int) -> SendRows | None: ...
def check_covered(
    view: bytes | memoryview, position: int, count: int, fixed: int, magic_1: int, magic_2: int
) -> int: ...
def read_covered(
    dispatched_type: type[_T], data: bytes, at: int, count: int, topics: dict[bytes, str], magic_1: int
) -> list[_T] | None: ...
def check_record(
    view: bytes | memoryview, at: int, position: int, check_crc: bool, magic_1: int, crc32: Callable[[Any], int]
) -> tuple[int, int] | None: ...
def judge_record(
    view: bytes | memoryview,
    at: int,
    position: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    end: int,
    magic_1: int,
    crc32: Callable[[Any], int],
) -> tuple[int, int] | None: ...
def judge_runs(
    runs: list[tuple[int, int]],
    buffers: list[memoryview | bytes],
    topic: bytes,
    queue_id: int,
    offset: int,
    end: int,
    magic_1: int,
    crc32: Callable[[Any], int],
) -> tuple[int, int]: ...
def join_ranges(starts: list[int], ends: list[int], runs: list[tuple[int, int]]) -> None: ...
def seal_entry(
    control_type: type[_T],
    kind: object,
    data: bytearray,
    index: int,
    position: int,
    timestamp: int,
    term: int,
    previous_term: int,
    count: int,
    commit: int,
    config: int,
    before: int,
    host: bytes,
    tail: bytes,
    magic: int,
    crc32: Callable[[Any], int],
) -> _T: ...
def check_entry(
    control_type: type[_T],
    kind: object,
    data: bytes,
    index: int,
    term: int,
    position: int,
    previous_term: int,
    config: int,
    before: int,
    tail: bytes,
    fixed: int,
    magic_1: int,
    magic_2: int,
    crc32: Callable[[Any], int],
) -> _T | None: ...
def by_queue(batch: list[_T]) -> list[Any] | None: ...
def pack_entries(entries: list[tuple[int, int, int]]) -> bytes: ...
def index_columns(batch: list[_T], prefixes: dict[str, int], left_out: int) -> tuple[bytes, bytes, bytes] | None: ...
def sums(batch: list[_T]) -> tuple[dict[str, list[int]], int]: ...
def gather(
    entries: bytes,
    accepts: frozenset[int] | None,
    view: memoryview,
    start: int,
    end: int,
    hot_from: int,
    filler: int,
    count_max: int,
    bytes_max: int,
    copied_max: int,
    whole: bool,
    asked: tuple[bytes, int, int, int, Callable[[Any], int]] | None,
    head: tuple[int, bytes, bytes] | None,
) -> tuple[bytes, int, int, int, list[tuple[int, int]] | None, int] | None: ...
def in_memory(view: memoryview, at: int, size: int) -> bool: ...

SOURCE_DIGEST: str
BUILT_WITH: str
