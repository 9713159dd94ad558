"""What a slave asks of its master: whole tables, each checked before anything of it counts.

RocketMQ's codes: 21 (topics) and 201 (groups) in pages, as its slaves do since 5.4, or in one piece from a master that
knows no pages; 43 (consumer offsets), 45 (delay progress), 402 (request modes); ours 9123 (users). A table that
is too large, or holds what cannot be, is refused as a whole: CopyRefused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from auth.copy_proof import UsersChallenge, UsersRequest, copy_proof
from broker.master_slave.offset_return import ReturnAnswer, ReturnRequest
from broker.metadata.consumer_groups import GROUPS_MAX
from broker.metadata.consumer_groups import check_config as check_group
from broker.metadata.feed import News, NewsRequest
from broker.metadata.offset_file import check_keys
from broker.metadata.topics import QUEUES_MAX, TOPICS_MAX
from broker.metadata.topics import check_config as check_topic
from broker.metadata.users import UsersContent
from broker.metadata.users import decode as decode_users
from broker.peers import Caller
from broker.reply import LOG_END, OFFSET_MARK, PAGE_ROWS_MAX
from remoting.bodies.registry import (
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError, ResponseError
from remoting.fastjson import read_strictly
from remoting.headers.base import Header
from remoting.headers.registry import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

# Rows of the other tables.
OFFSETS_MAX = 2_000_000
DELAY_LEVELS_MAX = 1000
MODES_MAX = 1_000_000
# Pages of one table, and how often it is begun anew because it changed between two pages.
PAGES_MAX = 5000
STARTS_MAX = 5
# Seconds that an answer may take; RocketMQ's slaves wait as long.
ANSWER_SECONDS = 30.0
# Digits of a number in a header.
DIGITS_MAX = 19
# What a master that is no broker of ours answers to a code of ours.
_UNKNOWN = ResponseCode.REQUEST_CODE_NOT_SUPPORTED

Place = tuple[str, str, int]
"""Topic, group and queue."""
Row = TypeVar("Row", TopicConfig, SubscriptionGroupConfig)
T = TypeVar("T")


class CopyRefused(Exception):
    """A table that the master sent is not taken; the text says why."""


class CopiedTopics(NamedTuple):
    """Code 21's answers together."""

    version: DataVersion
    topics: dict[str, TopicConfig]
    log_end: int | None
    """Where the master's log ended then; None when it is no broker of ours."""


class CopiedOffsets(NamedTuple):
    """Code 43's answer."""

    table: ConsumerOffsetTable
    mark: str | None
    """Of its lowerings; None when it is no broker of ours that tells."""


class CopiedDelays(NamedTuple):
    """Code 45's answer; see CopiedTopics."""

    progress: DelayOffsetTable
    log_end: int | None


class _Status(msgspec.Struct):
    """What is needed of code 9111's answer."""

    incarnation: str


class _Page(NamedTuple):
    """One answer of a table that comes in pages."""

    version: DataVersion
    rows: int
    total: int
    log_end: int | None


_Fetch = Callable[[int, int, str], Awaitable[_Page]]
"""Fetches so many rows from a row on; the text is the version that the rows before had."""


class MasterTables:
    """The tables of one master. Every method raises InvokeError when there is no good answer, and CopyRefused."""

    def __init__(self, client: Caller, address: str) -> None:
        self._client = client
        self._address = address

    async def incarnation(self) -> str:
        """Return which start of a master of ours answers now; see ha_compare.MasterLog."""
        answer = await self._client.call(self._address, ClassicCode.STATUS, None, b"", ANSWER_SECONDS)
        try:
            return read_strictly(answer.body, _Status).incarnation
        except msgspec.DecodeError as error:
            raise CopyRefused(f"its state cannot be read: {error}") from None

    async def news(self, seen: int, seconds: float) -> News | None:
        """Wait for news, at most so long; None from a master that does not know what that is."""
        asked = NewsRequest(seen, round(seconds * 1000))
        try:
            answer = await self._client.call(
                self._address, ClassicCode.AWAIT_METADATA, None, msgspec.json.encode(asked), seconds + ANSWER_SECONDS
            )
        except ResponseError as error:
            if error.code == _UNKNOWN:
                return None
            raise
        try:
            return read_strictly(answer.body, News)
        except msgspec.DecodeError as error:
            raise CopyRefused(f"its news cannot be read: {error}") from None

    async def topics(self, known: DataVersion) -> CopiedTopics | None:
        """Return all topics; None when their version is the one that is known."""
        found: dict[str, TopicConfig] = {}

        async def page(begin: int, count: int, version: str) -> _Page:
            header = GetAllTopicConfigRequestHeader(topicSeq=begin, maxTopicNum=count, dataVersion=version)
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            body = _decoded(TopicConfigTable.decode, answer)
            if begin == 0:
                found.clear()
            for name, topic in body.topicConfigTable.items():
                found[name] = topic if topic.topicName == name else msgspec.structs.replace(topic, topicName=name)
            total = _number(answer, "totalTopicNum")
            rows = len(body.topicConfigTable)
            return _Page(body.dataVersion, rows, rows if total is None else total, _number(answer, LOG_END))

        last = await _whole(page, known, TOPICS_MAX)
        if last is None:
            return None
        for topic in found.values():
            _check(check_topic, topic)
        return CopiedTopics(last.version, found, last.log_end)

    async def groups(self, known: DataVersion) -> SubscriptionGroupTable | None:
        """Return all groups; None when their version is the one that is known."""
        found: dict[str, SubscriptionGroupConfig] = {}
        forbidden: dict[str, dict[str, int]] = {}

        async def page(begin: int, count: int, version: str) -> _Page:
            header = GetAllSubscriptionGroupRequestHeader(groupSeq=begin, maxGroupNum=count, dataVersion=version)
            answer = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            body = _decoded(SubscriptionGroupTable.decode, answer)
            if begin == 0:
                found.clear()
                forbidden.clear()
            for name, group in body.subscriptionGroupTable.items():
                found[name] = group if group.groupName == name else msgspec.structs.replace(group, groupName=name)
            forbidden.update((group, topics) for group, topics in body.forbiddenTable.items() if topics)
            total = _number(answer, "totalGroupNum")
            rows = len(body.subscriptionGroupTable)
            return _Page(body.dataVersion, rows, rows if total is None else total, None)

        last = await _whole(page, known, GROUPS_MAX)
        if last is None:
            return None
        for group in found.values():
            _check(check_group, group)
        return SubscriptionGroupTable(last.version, forbidden, found)

    async def offsets(self) -> CopiedOffsets:
        """Return all consumer offsets; they are read in a thread, there may be many."""
        answer = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return CopiedOffsets(await asyncio.to_thread(_offsets_in, answer), answer.ext.get(OFFSET_MARK))

    async def return_offsets(self, mark: str, offsets: dict[Place, int]) -> ReturnAnswer:
        """Give a master of ours back what it lost; see broker/master_slave/offset_return.py."""
        by_key: dict[str, dict[int, int]] = {}
        for (topic, group, queue_id), offset in offsets.items():
            by_key.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        body = msgspec.json.encode(ReturnRequest(mark, by_key))
        answer = await self._client.call(self._address, ClassicCode.RETURN_OFFSETS, None, body, ANSWER_SECONDS)
        try:
            return read_strictly(answer.body, ReturnAnswer)
        except msgspec.DecodeError as error:
            raise CopyRefused(f"its answer about offsets cannot be read: {error}") from None

    async def delays(self) -> CopiedDelays:
        """Return the progress of the delay levels."""
        answer = await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)
        progress = _decoded(DelayOffsetTable.decode, answer)
        if len(progress.offsetTable) > DELAY_LEVELS_MAX:
            raise CopyRefused(f"it has {len(progress.offsetTable)} delay levels, the limit is {DELAY_LEVELS_MAX}")
        if any(level < 1 or offset < 0 for level, offset in progress.offsetTable.items()):
            raise CopyRefused("a delay level or its offset is below what can be")
        return CopiedDelays(progress, _number(answer, LOG_END))

    async def modes(self) -> MessageRequestModeTable | None:
        """Return all request modes; None from a master that has no such table."""
        try:
            answer = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        except ResponseError as error:
            if error.code == _UNKNOWN:
                return None
            raise
        modes = _decoded(MessageRequestModeTable.decode, answer)
        rows = sum(map(len, modes.messageRequestModeMap.values()))
        if rows > MODES_MAX:
            raise CopyRefused(f"it has {rows} request modes, the limit is {MODES_MAX}")
        return modes

    async def users(self, secret_key: str) -> UsersContent | None:
        """Return users and policies, secret keys included; None from a master that has no such table.

        `secret_key` is the brokers' own, which the master asks for a proof of (auth/copy_proof.py).
        """
        try:
            answer = await self._prove("")
        except ResponseError as error:
            if error.code == _UNKNOWN:
                return None
            raise
        try:
            challenge = read_strictly(answer.body, UsersChallenge).challenge
        except msgspec.DecodeError:
            raise CopyRefused("it asks for no proof before it gives its users: upgrade it") from None
        answer = await self._prove(copy_proof(secret_key, challenge))
        return _decoded(lambda body: decode_users(bytes(body)), answer)

    async def _prove(self, proof: str) -> Command:
        body = msgspec.json.encode(UsersRequest(proof))
        return await self._client.call(self._address, ClassicCode.USERS, None, body, ANSWER_SECONDS)

    async def commit(self, place: Place, offset: int) -> None:
        """Tell the master an offset that was committed here."""
        topic, group, queue_id = place
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset
        )
        await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _ask(self, code: RequestCode, header: Header | None = None) -> Command:
        return await self._client.call(self._address, code, header, b"", ANSWER_SECONDS)


async def _whole(page: _Fetch, known: DataVersion, rows_max: int) -> _Page | None:
    """Fetch page after page and return the last one; None when the table's version is the one that is known.

    A table that changes between two pages is begun anew.
    """
    version: DataVersion | None = None
    begin = starts = 0
    for _ in range(PAGES_MAX):
        if version is None:
            begin, starts = 0, starts + 1
            if starts > STARTS_MAX:
                raise CopyRefused(f"it changed while it was copied, {STARTS_MAX} times")
            # One row is enough to see whether there is anything to copy.
            last = await page(0, 1, "")
            version = last.version
            if version == known:
                return None
        else:
            last = await page(begin, PAGE_ROWS_MAX, version.encode().decode())
            if last.version != version:
                version = None
                continue
        begin += last.rows
        if max(begin, last.total) > rows_max:
            raise CopyRefused(f"it has {max(begin, last.total)} rows, the limit is {rows_max}")
        if begin >= last.total:
            return last
        if last.rows == 0:
            raise CopyRefused(f"it ends after {begin} of {last.total} rows")
    raise CopyRefused(f"it comes in more than {PAGES_MAX} pages")


def _decoded(decode: Callable[[bytes | memoryview], T], answer: Command) -> T:
    try:
        return decode(answer.body)
    except HeaderError as error:
        raise CopyRefused(f"its answer cannot be read: {error}") from None


def _number(answer: Command, field: str) -> int | None:
    """Return a number of the answer's header; None when it is not there."""
    text = answer.ext.get(field)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise CopyRefused(f"its answer has {field}={text[:DIGITS_MAX]!r}, which is no number")
    return int(text)


def _offsets_in(answer: Command) -> ConsumerOffsetTable:
    table = _decoded(ConsumerOffsetTable.decode, answer)
    try:
        check_keys(table)
    except HeaderError as error:
        raise CopyRefused(str(error)) from None
    rows = sum(map(len, table.offsetTable.values()))
    if rows > OFFSETS_MAX:
        raise CopyRefused(f"it has {rows} rows, the limit is {OFFSETS_MAX}")
    for key, queues in table.offsetTable.items():
        if queues and not 0 <= min(queues) <= max(queues) < QUEUES_MAX:
            raise CopyRefused(f"{key} has a queue that is not in 0 to {QUEUES_MAX - 1}")
        if queues and min(queues.values()) < 0:
            # -1 and the like are left behind by RocketMQ where a client knew no offset.
            table.offsetTable[key] = {queue: offset for queue, offset in queues.items() if offset >= 0}
    return table


def _check(check: Callable[[Row], None], row: Row) -> None:
    try:
        check(row)
    except CommandError as error:
        raise CopyRefused(error.remark) from None
