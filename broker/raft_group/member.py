"""A broker as member of a Raft group: vote file, node and links around the store's log, and what a commit causes here.

The only place that sees raft/ and store/ together. A commit goes, in the order of the log: queues and index
(`EntryLog.release`), metadata (`GroupMeta.apply`), then the role is looked at, so that a new leader serves only when
its own no-op and everything before it has got where clients can see it.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.metadata.agreed_locks import LOCKS_IN_LOG
from broker.metadata.log_sync import LogSync
from broker.metadata.queue_starts import QueueStarts
from broker.metadata.replicated import GroupMeta
from broker.metadata.table_file import MetadataError
from broker.metadata.topics import TopicTable
from broker.raft_group.admin import told
from broker.raft_group.async_flush_log import WrittenLog
from broker.raft_group.join_intent import putting_aside, what_was_said
from broker.raft_group.replication import RaftReplication
from broker.raft_group.retention import GroupRetention, check_config, start_events
from broker.raft_group.role import GroupRole
from broker.raft_group.snapshot import MARKER, VOTE, StoreSource
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.raft_keys import (
    anybody_is_a_member,
    group_settings,
    group_warnings,
    link_tls,
    moved_members,
    raft_bind_address,
    read_secrets,
)
from broker.settings.restart import RestartAction
from raft.core.votefile import STORE_ID_BYTES, VoteFile
from raft.network.driver import RaftDriver
from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import FEATURES, Hello
from raft.protocol.types import EntryType, Fate, Refusal, Role
from raft.snapshot.protocol import Marker, write_marker
from raft.snapshot.server import ResetServer
from runtime.clock import SteadyClock
from runtime.late import late
from runtime.listening import named_address
from store.config import SYNC_FLUSH
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog

_log = logging.getLogger(__name__)

# Seconds that a stop waits for another member to take the lead, beyond what one attempt may take.
HAND_OVER_SECONDS = 2.0
# Seconds that a new member may take to be linked to.
MEET_SECONDS = 4.0


class RaftGroup:
    """A broker's part in its group. Made when the store is open; `start` when everything else is built."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        clock: SteadyClock,
        *,
        address: str,
        on_fatal: Callable[[BaseException], None],
        restart: Callable[[RestartAction], None],
    ) -> None:
        """`address` is where this broker's clients find it; `restart` has it closed and started again.

        Raises ConfigError, VoteFileDamaged, VoteFileMissing, StoreDamaged, OSError.
        """
        config, entries = live.broker, store.entries
        assert entries is not None, "the store was opened as a group member's"
        check_config(entries)
        said = self._said = what_was_said(live.store.root, entries)
        self.settings = replace(group_settings(config, config.group_name()), founds=said.founds, joins=said.joins)
        self._live = live
        self._store = store
        self._entries: EntryLog = entries
        self._clock = clock
        self._address = address
        self.name = self.settings.self_id
        self.monotonic = clock.monotonic
        self._on_fatal = on_fatal
        self._restart = restart
        self._sync = live.store.flushDiskType == SYNC_FLUSH
        gap = config.authenticationEnabled and anybody_is_a_member(config)
        self._warnings = tuple(group_warnings(self.settings, durable=self._sync, gap=gap))
        for warning in self._warnings:
            _log.warning("%s", warning)
        self._votes = self._open_votes()
        loop = asyncio.get_running_loop()
        self.role = GroupRole(self.settings.self_id)
        self.meta = GroupMeta(self.role, loop.call_later, clock, LogSync(store))
        self.replication = RaftReplication(
            entries,
            self.role,
            loop,
            writable=lambda: store.writable() or self.starved,
            flush_metadata=self.meta.flush,
            pending_bytes_max=config.pendingBytesMax,
            now=clock.monotonic,
        )
        self.role.subscribe(self.replication.role_changed)
        self._applied = entries.released
        self._replayed = False
        self._loop = loop
        self._copies = ResetServer(StoreSource(live.store, entries, self._no_copy))
        self._driver: RaftDriver = RaftDriver(
            self.settings,
            entries if self._sync else WrittenLog(entries, late(lambda: self._driver.durable_in_thread)),
            self._votes,
            hello=self._hello,
            events=self,
            secrets=read_secrets(config),
            tls=link_tls(config),
            copies=self._copies,
            clock=clock,
            on_linked=lambda member_id, hello: self.role.introduced(member_id, hello.broker_address, hello.features),
        )
        self.node = self._driver.node
        # For the store's threads: StoreEvents. With ASYNC_FLUSH it is the WrittenLog that tells.
        self.flushed_in_thread = self._driver.durable_in_thread if self._sync else lambda _position: None
        self.flushed_in_loop = self._driver.durable if self._sync else lambda _position: None
        self.worked_in_thread = self._driver.wake_in_thread
        self.retention: GroupRetention

    def _open_votes(self) -> VoteFile:
        entries = self._entries
        votes = VoteFile.open(
            self._live.store.root / VOTE,
            # What a group that has ended left in the log, here or where the log was copied from, needs no vote.
            has_log=entries.last.index > entries.base.index,
            new_id=lambda: os.urandom(STORE_ID_BYTES),
        )
        if self._said.epoch > votes.term:
            # A group's first term is above what the store's registrations have carried so far (R15).
            votes.save(self._said.epoch, "")
        return votes

    def replay(self) -> None:
        """Bring the tables, which are attached by now, up to what the log is known to have committed (R3).

        Raises MetadataError when the log no longer has what they lack: the member must be reset.
        """
        entries = self._entries
        at = entries.last_config()
        # While nobody can tell whose group this is, its metadata waits too: for whoever fills the hole.
        self._replayed = at > 0 or entries.whole
        if at == 0:
            return
        config = GroupConfig.decode(entries.payload(at))
        began = config.base_index + 1
        if config.classic or began > entries.commit:
            # No group yet, or none any more: its first entry stamps the tables when it is committed.
            return
        why = self.meta.load_stamps(config.group_id, entries.base.index + 1)
        if why is not None:
            if entries.base.index >= began:
                self._mark("", config)
                raise MetadataError(f"{why}: this member copies the leader's store at its next start")
            # A stop between the commit of the first entry and the stamps: from here on all of it is in the log.
            _log.warning("%s: the metadata is taken from the log, from entry %d on", why, began)
            self.meta.stamp_all(config.group_id, began)
        # What is damaged, and all behind it, waits until other members have repaired it (R4).
        for index in range(self.meta.replay_from(), self._applied + 1):
            try:
                entry = entries.control(index)
            except LookupError:
                self._applied = index - 1
                break
            if entry.kind is EntryType.META:
                self.meta.apply(index, entry.payload)
        self.meta.advance(self._applied)

    # -- what the node tells

    def on_commit(self, index: int) -> None:
        """Take everything up to an entry into queues, index and tables, in the order of the log."""
        entries, meta = self._entries, self.meta
        if not self._replayed:
            self.replay()
            if not self._replayed:
                return
        index = min(index, entries.readable)
        for at in range(self._applied + 1, index + 1):
            try:
                entry = entries.control(at)
            except LookupError:
                # It is damaged: once a peer has repaired it, this is called again.
                index = at - 1
                break
            if entry.kind is EntryType.META:
                # The messages before it first, and none behind it: it may delete the queues of a topic.
                entries.release(at)
                if entries.released < at:
                    index = entries.released
                    break
                meta.apply(at, entry.payload)
            elif entry.kind is EntryType.CONFIG:
                config = GroupConfig.decode(entry.payload)
                if config.base_index + 1 == at:
                    meta.stamp_all(config.group_id, at)
                    override.begun(self._live.store.root)
        if index > self._applied:
            entries.release(index)
            self._applied = min(index, entries.released)
            meta.advance(self._applied)
        if not self.role.leads and self.node.role is Role.LEADER:
            # Only when this returns is all of it applied, and may it lead.
            self._loop.call_soon(self.role.refresh)

    def on_role(self, role: Role, term: int) -> None:
        """Follow the node: what only a leader may do ends in this very moment."""
        _log.info("raft: %s is %s in term %d", self.settings.self_id, role.name.lower(), term)
        self.role.refresh()

    def on_leader(self, member_id: str | None) -> None:
        """Follow the node: clients are sent to another member now."""
        _log.info("raft: %s", "no leader is known" if member_id is None else f"{member_id} leads")
        self.role.refresh()

    def on_config(self, config: GroupConfig) -> None:
        """Say who the members are now."""
        voters, learners = ", ".join(config.voters), ", ".join(config.learners)
        _log.info("raft: voters are %s%s", voters, f"; {learners} learn" if learners else "")

    def on_fatal(self, error: BaseException) -> None:
        """End the process."""
        self._on_fatal(error)

    def reset_wanted(self, member_id: str) -> None:
        """Copy the store of the leader, which no longer keeps what this member lacks (R13).

        What another group, or none, left here is put aside first: then there is nothing, and a copy follows.
        """
        # It says nothing more to anybody: what it holds is about to go.
        self._loop.call_soon(self.node.stop)
        if self.settings.joins and self.node.config is None and self._store.written:
            self._restart(putting_aside(f"its log is not what the group's begins with ({member_id} has that)"))
            return
        self._mark(member_id, self.node.config)
        self._restart(RestartAction(f"the store is to be replaced by a copy of {member_id}'s"))

    # -- for the broker

    async def start(self) -> None:
        """Listen for the other members and take part. Raises OSError."""
        if self._said.aside:
            self._loop.call_soon(self._restart, putting_aside(self._said.aside))
            return
        self.meta.attach_node(self.node)
        self.replication.attach(self.node)
        self.role.attach(self.node)
        host = raft_bind_address(self._live.broker, self.settings, self._live.broker.bindAddress)
        port, key = self._live.broker.raftListenPort, "raftListenPort"
        if not port:
            port, key = self.settings.own.port, f"dLegerPeers ({self.name})"
        with named_address(key, host, port):
            await self._driver.start(host, port)
        for warning in moved_members(self.settings, self.node.config):
            _log.warning("%s", warning)

    @property
    def config(self) -> GroupConfig | None:
        """Who belongs to the group, None while this member is in none."""
        return self.node.config

    @property
    def hosts(self) -> set[str]:
        """The addresses of the members that there is a link to, or from."""
        return self._driver.transport.hosts

    async def hand_over(self) -> bool:
        """Give the lead to another member; tell whether this one leads no more."""
        return await self._driver.hand_over(self.settings.transfer_ms / 1000 + HAND_OVER_SECONDS)

    async def close(self) -> None:
        """Take part no more."""
        self._copies.close()
        await self._driver.close()

    def status(self) -> dict[str, Any]:
        """Return what this member knows of its group, for people."""
        return {
            **self._driver.status(),
            "leads": self.role.leads,
            "lease": self.role.lease(),
            "brokerId": self.role.broker_id,
            "brokerName": self._live.broker.name(),
            "brokerAddress": self._address,
            "leaderAddress": self._address if self.role.leads else self.role.leader_address,
            "flushDiskType": self._live.store.flushDiskType,
            "writesRefused": self._store.refused or self.starved,
            "pendingBytes": self.replication.pending_bytes,
            "warnings": [
                *self._warnings,
                *moved_members(self.settings, self.node.config),
                *filter(None, [self.clock_apart]),
            ],
        }

    def clock_ms(self) -> int:
        """Return what this member tells others that its wall clock shows."""
        return self.node.clocks.says()

    def age_seconds(self, member: str, clock_ms: int) -> tuple[float, float]:
        """Return how long ago another member's wall clock showed that, at least and at most."""
        return self.node.clocks.since_s(member, clock_ms)

    @property
    def starved(self) -> str | None:
        """Why this member takes no messages though its own disk has room, as a leader; None when it does."""
        return self.node.starved() if self.role.leads else None

    @property
    def clock_apart(self) -> str:
        """Why this member must not lead for its clock, "" when nothing is against it (R17)."""
        return self.node.clocks.apart

    async def add_learner(self, member_id: str, address: str) -> Refusal | Fate:
        """Meet a new member and make it a learner; it votes once it has caught up.

        Raises ConfigRefused, TimeoutError.
        """
        host, _, port = address.rpartition(":")
        hello = await self._driver.meet(member_id, (host.strip("[]"), int(port)), MEET_SECONDS)
        fate: asyncio.Future[Fate] = self._loop.create_future()
        refusal = self.node.add_learner(Member(member_id, address, hello.store_id, voter=False), told(fate))
        return await fate if refusal is None else refusal

    def attach(self, topics: TopicTable, folder: Path) -> None:
        """Take the table of topics, and make the one of where queues begin, before META is replayed.

        Raises MetadataError.
        """
        events = start_events(lambda: self.retention)
        starts = QueueStarts(folder / "queueStart.json", self._clock, self.meta, events)
        file_bytes, kept = self._live.store.mappedFileSizeCommitLog, lambda topic: topics.get(topic) is not None
        self.retention = GroupRetention(
            self._store, self._entries, self.node, self.role, self.meta, starts, kept, file_bytes=file_bytes
        )

    def delete_queues(self, topics: Sequence[str], index: int) -> None:
        """Delete the queues of topics whose deletion was agreed upon in an entry, as far as they stand before it."""
        for topic in topics:
            self._store.delete_topic(topic, self._entries.end_position(index))

    def _mark(self, leader: str, config: GroupConfig | None) -> None:
        """Note on disk that this store is to be replaced by a copy before it is opened again (R13)."""
        why = "it was behind what the group retains"
        marker = Marker(leader=leader, why=why)
        if config is not None:
            peers = tuple((member.id, member.address) for member in config.members)
            marker = marker._replace(group_id=config.group_id.hex(), peers=peers)
        write_marker(self._live.store.root / MARKER, marker)

    def _no_copy(self) -> str | None:
        return None if self.role.leads else f"this member does not lead; {self.node.leader_id or 'nobody known'} does"

    def _hello(self) -> Hello:
        """Return what this member says of itself to another one."""
        entries, node = self._entries, self.node
        config = node.config
        in_group = config is not None and not config.classic
        base = config.base if config is not None and in_group else (0, 0, 0)
        if config is None and self.settings.joins:
            base = entries.last.index, entries.last.end, entries.last.chain
        return Hello(
            group=self.settings.group,
            self_id=self.settings.self_id,
            store_id=self._votes.store_id,
            group_id=config.group_id if config is not None and in_group else b"",
            last_index=entries.last.index,
            last_term=entries.last.term,
            base_index=base[0],
            base_position=base[1],
            empty=self._store.written == 0,
            has_log=entries.last.index > 0,
            log_file_bytes=self._live.store.mappedFileSizeCommitLog,
            flush_sync=self._sync,
            clock_ms=self._clock.wall_ms(),
            features=(*FEATURES, LOCKS_IN_LOG),
            broker_address=self._address,
            base_digest=base[2],
            config_index=node.config_index,
            peer_ids=tuple(peer.id for peer in self.settings.peers),
        )
