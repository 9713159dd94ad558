"""A slave's metadata: copies of its master's tables, and the offsets that were committed here while it was away.

Copied are topics, groups, consumer offsets, delay progress and request modes, from the master's broker port: at the
start, every slaveMetadataMs, and at once when a master of ours tells of a change (broker/meta_news.py). Versions are
taken over, but for stateVersion, which never falls (R15): a master of ours whose topics have a lower one than these was
deposed, and nothing of it is taken. Answers that cannot be right are refused and logged; the table stays as it is.

What consumers commit here is remembered until the master has it: offsets that are greater than the master's are sent to
it (code 15) before its table is taken over, and win until then, so that no offset goes back in either place.

Delay progress counts when this log holds what was delivered up to it: else a promoted slave would pass over messages
whose deliveries it never got. Queues of topics that are gone go when the log is as far as the master's was then.

How the composition root uses it (mode: a slave; its meta is LocalMeta(leads=False)):

    modes = RequestModes(folder / "messageRequestMode.json")      every mode: its table() among the handlers; close()
    news = MetaNews(meta, loop.call_later, lambda: role.leads, random.getrandbits(40))
                                                                  master (and slave: it refuses); table(); close()
    copies = SlaveMeta(SlaveTables(topics, groups, offsets, schedule, modes), client, lambda: live.broker,
                       master=lambda: role.leader_address, log_end=lambda: store.slave.dispatched,
                       drop_queues=store.delete_topic)
    copies.start()          behind the start of the registration; no handlers of its own
    copies.hurry()          when the master changed, or its HA connection was made: asks at once
    await copies.close()    before the tables are closed and the client
    copies.status()         for STATUS 9111 and /v1/ha, under "metadata"
    copies.synced           whether every table is a copy of this master's; a slave is not ready before
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.classic_config import ClassicKeys
from broker.groups import GroupTable
from broker.meta_log import Table
from broker.meta_news import News
from broker.offsets import OffsetTable
from broker.request_modes import RequestModes
from broker.schedule import ScheduleService
from broker.slave_copy import Caller, CopiedDelays, CopyRefused, MasterTables
from broker.topics import TopicTable
from remoting.codes import ResponseCode
from remoting.errors import RemotingError, ResponseError

_log = logging.getLogger(__name__)

# Seconds until a master that does not answer, or that nobody knows yet, is asked again.
RETRY_SECONDS = 1.0
# How many times as long as a copy took nothing is copied afterwards: large tables must not keep the master busy.
PAUSE_FACTOR = 4.0
# Offsets that are on their way to the master at a time.
COMMITS_AT_A_TIME = 64
# Topics that are gone and whose queues are not yet; more are left for code 316 (cleanUnusedTopic).
GONE_MAX = 10_000
# What a master says of an offset that it will never take.
_UNWANTED = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)

MODES = "MODES"
# In this order: what offsets and progress are about comes first.
COPIED = (Table.TOPICS.name, Table.GROUPS.name, Table.OFFSETS.name, Table.DELAY.name, MODES)


class SlaveTables(NamedTuple):
    """What is copied into."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    schedule: ScheduleService
    modes: RequestModes


class MasterDeposed(Exception):
    """The master's tables are of an earlier time than these."""


class SlaveMeta:
    """Keeps a slave's tables equal to its master's. Everything happens in the loop."""

    def __init__(
        self,
        tables: SlaveTables,
        client: Caller,
        keys: Callable[[], ClassicKeys],
        *,
        master: Callable[[], str | None],
        log_end: Callable[[], int],
        drop_queues: Callable[[str, int], None],
    ) -> None:
        """See the top of this file.

        `master` tells the address of the master's broker port, None when it is not known; `log_end` where this log
        ends (whole records, in their queues); `drop_queues(topic, before)` deletes what stands before a position.
        """
        self._tables = tables
        self._client = client
        self._keys = keys
        self._master = master
        self._log_end = log_end
        self._drop_queues = drop_queues
        # Whether every table is a copy of this master's.
        self.synced = False
        self._address: str | None = None
        self._ask = MasterTables(client, "")
        # Whether the master tells news; None: not asked yet.
        self._tells: bool | None = None
        self._seen = -1
        self._numbers: dict[str, int] = {}
        # When everything is copied again, news or not (loop time).
        self._whole_at = 0.0
        self._copied_at = 0.0
        self._refused: dict[str, str] = {}
        self._trouble = ""
        self._held: CopiedDelays | None = None
        self._gone: dict[str, int] = {}
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to copy, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="copy metadata")

    def hurry(self) -> None:
        """Ask the master at once: it changed, or is back."""
        self._hurry.set()

    async def close(self) -> None:
        """Copy no more, and write the progress that was copied. Raises OSError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        await self._tables.schedule.persist()

    def status(self) -> dict[str, Any]:
        """Return what is known of the copies, for people."""
        loop = asyncio.get_running_loop()
        return {
            "master": self._address,
            "synced": self.synced,
            "news": self._tells,
            "copiedSecondsAgo": round(loop.time() - self._copied_at, 1) if self._copied_at else None,
            "ownCommits": len(self._tables.offsets.own_commits()),
            "refused": dict(self._refused),
            "trouble": self._trouble,
        }

    async def _run(self) -> None:
        while True:
            address = self._master()
            if address != self._address:
                self._begin(address)
            if address is None:
                await self._nap(RETRY_SECONDS)
                self._hurry.clear()
                continue
            try:
                await self._round()
            except (RemotingError, CopyRefused, MasterDeposed, OSError) as error:
                await self._failed(error)
            except Exception as error:
                _log.exception("metadata cannot be copied from %s", address)
                await self._failed(error)

    async def _round(self) -> None:
        """Wait for news, or until the time has come, and copy what changed."""
        loop = asyncio.get_running_loop()
        news = await self._news()
        if self._hurry.is_set():
            self._hurry.clear()
            self._whole_at = 0.0
            return
        began = loop.time()
        whole = began >= self._whole_at
        self._catch_up()
        for name in COPIED:
            if whole or self._is_news(news, name):
                await self._copy(name)
        self._catch_up()
        if news is not None:
            self._seen, self._numbers = news.seen, news.tables
            if self._held is not None:
                # Progress made since then is fetched when this counts.
                self._numbers.pop(Table.DELAY.name, None)
        if whole:
            self._whole_at = began + self._keys().slaveMetadataMs / 1000
        self.synced = not self._refused
        self._copied_at = loop.time()
        self._settled()
        await asyncio.sleep(PAUSE_FACTOR * (loop.time() - began))

    async def _news(self) -> News | None:
        """Return the master's news; None from one that tells none, when it is time to look, and when somebody hurries.

        The time comes soon when something waits for the log.
        """
        wait = max(0.0, self._whole_at - asyncio.get_running_loop().time())
        if self._tells is False or self._waits_for_log():
            wait = min(wait, RETRY_SECONDS)
        if self._tells is False:
            await self._nap(wait)
            return None
        asked = asyncio.ensure_future(self._ask.news(self._seen, wait))
        hurried = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((asked, hurried), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return None
            news = asked.result()
            self._tells = news is not None
            return news
        finally:
            for task in (asked, hurried):
                task.cancel()
            await asyncio.gather(asked, hurried, return_exceptions=True)

    def _is_news(self, news: News | None, name: str) -> bool:
        return news is not None and news.tables.get(name) != self._numbers.get(name)

    async def _copy(self, name: str) -> None:
        """Copy one table; what is refused costs the others nothing."""
        copies = {
            Table.TOPICS.name: self._topics,
            Table.GROUPS.name: self._groups,
            Table.OFFSETS.name: self._offsets,
            Table.DELAY.name: self._delays,
            MODES: self._modes,
        }
        try:
            await copies[name]()
        except (CopyRefused, ResponseError) as error:
            why = str(error)
            if self._refused.get(name) != why:
                _log.error("%s of %s is not copied, it stays as it is: %s", name, self._address, why)
            self._refused[name] = why
        else:
            self._refused.pop(name, None)

    async def _topics(self) -> None:
        table = self._tables.topics
        copied = await self._ask.topics(table.data_version)
        if copied is None:
            return
        own = table.data_version.stateVersion
        if self._tells and copied.version.stateVersion < own:
            raise MasterDeposed(
                f"its topics are of epoch {copied.version.stateVersion}, these of {own}: it was deposed"
            )
        removed = table.take_over(copied.topics, copied.version)
        for topic in copied.topics:
            self._gone.pop(topic, None)
        if copied.log_end is not None:
            room = GONE_MAX - len(self._gone)
            self._gone.update(dict.fromkeys(removed[:room], copied.log_end))
        if removed:
            _log.info("topics deleted by the master: %s", ", ".join(removed))

    async def _groups(self) -> None:
        table = self._tables.groups
        copied = await self._ask.groups(table.data_version)
        if copied is not None:
            table.take_over(copied)

    async def _offsets(self) -> None:
        table = self._tables.offsets
        copied = await self._ask.offsets()
        own = table.own_commits()
        greater = [
            (place, offset)
            for place, offset in own.items()
            if offset > copied.offsetTable.get(f"{place[0]}@{place[1]}", {}).get(place[2], -1)
        ]
        for begin in range(0, len(greater), COMMITS_AT_A_TIME):
            await asyncio.gather(*(self._commit(*each) for each in greater[begin : begin + COMMITS_AT_A_TIME]))
        if greater:
            copied = await self._ask.offsets()
        table.take_over(copied, own)

    async def _commit(self, place: tuple[str, str, int], offset: int) -> None:
        try:
            await self._ask.commit(place, offset)
        except ResponseError as error:
            if error.code not in _UNWANTED:
                raise
            # It has no such topic, group or queue any more: nothing is lost with the offset.
            _log.info("%s of group %s queue %d: offset %d is not wanted: %s", *place, offset, error)

    async def _delays(self) -> None:
        if self._held is None:
            self._held = await self._ask.delays()

    async def _modes(self) -> None:
        copied = await self._ask.modes()
        if copied is not None:
            self._tables.modes.take_over(copied)

    def _waits_for_log(self) -> bool:
        return self._held is not None or bool(self._gone)

    def _catch_up(self) -> None:
        """Do what had to wait until this log holds what the master's did."""
        if not self._waits_for_log():
            return
        end = self._log_end()
        held = self._held
        if held is not None and (held.log_end is None or end >= held.log_end):
            self._held = None
            self._tables.schedule.take_over(held.progress)
        for topic in [topic for topic, before in self._gone.items() if end >= before]:
            self._drop_queues(topic, self._gone.pop(topic))

    def _begin(self, address: str | None) -> None:
        """Forget what was known of another master."""
        self._address = address
        self._ask = MasterTables(self._client, address or "")
        self._forget()
        if address is not None:
            _log.info("metadata is copied from %s", address)

    def _forget(self) -> None:
        """Have everything copied anew: who answers next may be another process."""
        self.synced = False
        self._tells, self._seen, self._numbers = None, -1, {}
        self._whole_at = 0.0
        self._held = None
        self._refused.clear()

    async def _failed(self, error: Exception) -> None:
        self._forget()
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("metadata is not copied from %s: %s; it is tried again", self._address, error)
        await self._nap(RETRY_SECONDS)
        self._hurry.clear()

    def _settled(self) -> None:
        if self._trouble:
            self._trouble = ""
            _log.info("metadata is copied from %s again", self._address)

    async def _nap(self, seconds: float) -> None:
        """Wait, unless somebody hurries."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)
