"""A slave's metadata: copies of its master's tables, and the offsets that were committed here while it was away.

Copied are users, topics, groups, consumer offsets, delay progress and request modes, from the master's broker port: at
the start, every slaveMetadataMs, and at once when a master of ours tells of a change (broker/metadata/feed.py).
Versions are taken over, but for stateVersion, which never falls (R15): a master of ours whose topics have a lower one
than these was deposed, and nothing of it is taken. Answers that cannot be right are refused and logged; the table stays
as it is.

Nothing is copied unless the master's log is followed (R16): a master that lost its store, or another broker of its
name, has tables too, and this slave's may be the only ones. When an answer is taken, the process that was asked must
still be the one whose log was compared.

What consumers commit here is remembered until the master has it. It, and what a master that was killed has forgotten,
goes to the master before its table is taken over (broker/master_slave/slave_offsets.py), so that no offset goes back
in either place unless somebody set it back.

Delay progress counts when this log holds what was delivered up to it: else a promoted slave would pass over messages
whose deliveries it never got. Queues of topics that are gone go when the log is as far as the master's was then.

How the composition root uses it (mode: a slave; its meta is LocalMeta(leads=False, on_change, on_progress)):

    modes = RequestModes(folder / "messageRequestMode.json", meta)
                                                                  every mode: its table() among the handlers; close()
    news = MetaNews(loop.call_later, lambda: role.leads, random.getrandbits(40))
                                                                  master (and slave: it refuses); table(); close()
    copies = SlaveMeta(SlaveTables(topics, groups, offsets, schedule, modes), client, lambda: live.broker,
                       followed=lambda: ha.followed, log_end=lambda: store.slave.dispatched,
                       drop_queues=store.delete_topic, end_before=partial(end_before, store))
    copies.start()          behind the start of the registration; no handlers of its own
    copies.hurry()          when the master's log comes, or its HA connection was made: asks at once
    await copies.close()    before the tables are closed and the client
    copies.status()         for STATUS 9111 and /v1/ha, under "metadata"
    copies.synced           whether every table is a copy of this master's; a slave is not ready before
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.master_slave.ha_state import Followed
from broker.master_slave.slave_offsets import BetterOffsets
from broker.master_slave.table_requests import CopiedDelays, CopyRefused, MasterTables
from broker.messages.delay_levels import ScheduleService
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.feed import News
from broker.metadata.operations import Table
from broker.metadata.request_modes import RequestModes
from broker.metadata.topics import TopicTable
from broker.metadata.users import UserTable
from broker.peers import Caller
from broker.settings.pair_keys import ClassicKeys
from remoting.errors import HeaderError, RemotingError, ResponseError

_log = logging.getLogger(__name__)

# Seconds until a master that does not answer, or that nobody knows yet, is asked again.
RETRY_SECONDS = 1.0
# How many times as long as a copy took nothing is copied afterwards: large tables must not keep the master busy.
PAUSE_FACTOR = 4.0
# Topics that are gone and whose queues are not yet; more are left for code 316 (cleanUnusedTopic).
GONE_MAX = 10_000
MODES = Table.MODES.name
# In this order: what offsets and progress are about comes first.
COPIED = (Table.USERS.name, Table.TOPICS.name, Table.GROUPS.name, Table.OFFSETS.name, Table.DELAY.name, MODES)


class SlaveTables(NamedTuple):
    """What is copied into."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    schedule: ScheduleService
    modes: RequestModes
    users: UserTable


class NotFollowed(Exception):
    """The master is not followed any more, or another process answers in its place: nothing of it is taken."""


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
        followed: Callable[[], Followed | None],
        log_end: Callable[[], int],
        drop_queues: Callable[[str, int], None],
        end_before: Callable[[str, int, int], int],
    ) -> None:
        """See the top of this file.

        `followed` tells whose log comes now, None when nobody's does; `log_end` where this log ends (whole records, in
        their queues); `drop_queues(topic, before)` deletes what stands before a position; `end_before` is told to
        BetterOffsets.
        """
        self._tables = tables
        self._client = client
        self._keys = keys
        self._followed = followed
        self._log_end = log_end
        self._drop_queues = drop_queues
        self._better = BetterOffsets(tables.offsets, end_before)
        # Whether every table is a copy of this master's.
        self.synced = False
        self._of: Followed | None = None
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
            of = self._followed()
            if of != self._of:
                self._begin(of)
            if of is None:
                await self._nap(RETRY_SECONDS)
                self._hurry.clear()
                continue
            try:
                await self._round()
            except NotFollowed as error:
                _log.info("metadata of %s is not taken: %s", self._address, error)
                self._forget()
                await self._nap(RETRY_SECONDS)
            except (RemotingError, CopyRefused, MasterDeposed, OSError) as error:
                await self._failed(error)
            except Exception as error:
                _log.exception("metadata cannot be copied from %s", self._address)
                await self._failed(error)

    async def _round(self) -> None:
        """Wait for news, or until the time has come, and copy what changed."""
        loop = asyncio.get_running_loop()
        news = await self._news()
        if self._hurry.is_set():
            self._hurry.clear()
            self._whole_at = 0.0
            return
        if self._followed() != self._of:
            return
        began = loop.time()
        whole = began >= self._whole_at
        self._catch_up()
        for name in COPIED:
            if whole or self._is_news(news, name):
                await self._copy(name)
        self._same_connection()
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
            Table.USERS.name: self._users,
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
        await self._still_followed()
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
        await self._still_followed()
        if copied is not None:
            table.take_over(copied)

    async def _offsets(self) -> None:
        table, of = self._tables.offsets, self._of
        assert of is not None, "nothing is copied of nobody"
        copied = await self._ask.offsets()
        await self._still_followed()
        own = table.own_commits()
        if await self._better.give_back(self._ask, copied, own, of):
            copied = await self._ask.offsets()
            await self._still_followed()
        table.take_over(copied.table, own, copied.mark)

    async def _delays(self) -> None:
        if self._held is None:
            held = await self._ask.delays()
            await self._still_followed()
            self._held = held

    async def _modes(self) -> None:
        copied = await self._ask.modes()
        await self._still_followed()
        if copied is not None:
            self._tables.modes.take_over(copied)

    async def _users(self) -> None:
        table = self._tables.users
        inner = table.directory.inner
        if inner is None:
            return  # they are given to nobody who does not know the brokers' own secret key
        copied = await self._ask.users(inner.secret_key)
        await self._still_followed()
        if copied is not None:
            try:
                table.take_over(copied)
            except HeaderError as error:
                raise CopyRefused(str(error)) from None

    async def _still_followed(self) -> None:
        """Raise NotFollowed unless what was answered just now came from the process whose log comes here.

        It was that process before the question. If it is it afterwards, no other one can have answered.
        """
        self._same_connection()
        of = self._of
        if of is not None and of.incarnation and (now := await self._ask.incarnation()) != of.incarnation:
            raise NotFollowed(f"another process answers at {of.address}: {now} in the place of {of.incarnation}")
        self._same_connection()

    def _same_connection(self) -> None:
        if self._followed() != self._of:
            raise NotFollowed("its log does not come any more")

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

    @property
    def _address(self) -> str | None:
        return None if self._of is None else self._of.address

    def _begin(self, of: Followed | None) -> None:
        """Forget what was known of another master."""
        self._of = of
        self._ask = MasterTables(self._client, self._address or "")
        self._forget()
        if of is not None:
            _log.info("metadata is copied from %s", of.address)

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
