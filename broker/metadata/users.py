"""The users of this broker and what they may do: config/auth.json, which only its owner reads.

Verifying a signature takes the user's secret key itself, so the file holds secret keys in the clear, and so do META
entries of a Raft group and what a slave copies. Entries go over Raft links, closed by raftSecretFile and hidden by
raftTls… where these are set (beyond loopback the secret must be). A copy (9123) goes over the master's own port, which
haSecretFile does not cover: TLS hides it, and nobody gets it but a slave that proves that it knows the secret key of
innerClientAuthenticationCredentials (auth/copy_proof.py).

Every change is an operation (broker/metadata/operations.py). The administrator is shown a change at once; it decides
about requests when it is applied. A group whose members have no users proposes nothing, so that members of a version
that knows no users go on.

The file is ours, RocketMQ keeps these in RocksDB: {"dataVersion": ..., "users": [...], "policies": {name: [...]}}. A
change of a large one goes into a journal beside it (broker/metadata/table_journal.py), which is its owner's alone, too.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from auth.directory import AccessDirectory
from auth.model import NAME_LENGTH_MAX, Policies, User
from auth.wire import read_policies, read_user, stored_policies, stored_user
from broker.metadata.operations import LocalMeta, MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamped
from broker.metadata.table_journal import journal_of
from broker.metadata.versions import next_version, packed, unpacked
from remoting.bodies.registry import DataVersion
from remoting.codes import ResponseCode
from remoting.errors import CommandError, HeaderError
from runtime.clock import Clock

_log = logging.getLogger(__name__)

FILE_NAME = "auth.json"
FILE_MODE = 0o600
# Users, and policies of all of them together: a slave copies them whole.
USERS_MAX = 10_000
POLICIES_MAX = 50_000

# The kinds of rows in an operation.
_USER, _POLICIES = "user", "policies"


class UsersContent(msgspec.Struct):
    """What the file holds, and what a slave is answered."""

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    users: list[Any] = []
    policies: dict[str, Any] = {}


class _State:
    """Users and policies by name, how many policies, and the version: changed by operations only."""

    __slots__ = ("counted", "policies", "users", "version")

    def __init__(self, version: DataVersion) -> None:
        self.users: dict[str, User] = {}
        self.policies: dict[str, Policies] = {}
        self.counted = 0
        self.version = version

    def say(self, name: str, policies: Policies) -> None:
        """Take this for all that a user may do."""
        self.counted += _count(policies) - _count(self.policies.get(name, {}))
        if policies:
            self.policies[name] = policies
        else:
            self.policies.pop(name, None)

    def apply(self, operation: Operation) -> None:
        verb = operation[0]
        if verb == Verb.PUT:
            for kind, name, value in operation[3]:
                if kind == _USER:
                    self.users[name] = read_user(msgspec.json.decode(value))
                elif kind == _POLICIES:
                    self.say(name, read_policies(msgspec.json.decode(value)) if value else {})
                else:
                    raise MetadataError(f"a row {kind!r} of users is unknown: upgrade this member")
        elif verb == Verb.DELETE:
            for name in operation[3]:
                self.users.pop(name, None)
                self.say(name, {})
        elif verb == Verb.CLEAR:
            self.users.clear()
            self.policies.clear()
            self.counted = 0
        else:
            raise MetadataError(f"operation {verb!r} on users is unknown: upgrade this member")
        self.version = unpacked(operation[2], self.version)

    def copy_from(self, other: "_State") -> None:
        self.users.clear()
        self.users.update(other.users)
        self.policies.clear()
        self.policies.update(other.policies)
        self.counted = other.counted
        self.version = other.version


class UserTable:
    """Users and policies. What was handed out is never changed: a change replaces it."""

    routes: tuple[Table, ...] = (Table.USERS,)

    def __init__(self, path: Path, clock: Clock, directory: AccessDirectory, meta: MetaLog | None = None) -> None:
        """Load the table; `directory` goes by it from now on. Raises MetadataError when the file cannot be used."""
        self._clock = clock
        self._meta: MetaLog = LocalMeta() if meta is None else meta
        self.directory = directory
        # No time before the first change: members that never had one are equal.
        self._applied = _State(DataVersion(0, 0, 0))
        self.file = ConfigFile(path, self._snapshot, mode=FILE_MODE, optional=True)
        loaded = self.file.load(decode)
        if loaded is not None:
            self._read(loaded)
        for each in (path, path.with_name(path.name + ".bak"), journal_of(path)):
            _close(each)
        self.file.replay(self._applied.apply)
        self._view = self._applied
        if self._meta.shared:
            self._view = _State(self._applied.version)
            self._view.copy_from(self._applied)
        self._meta.attach(self)
        self._decides()

    @property
    def agreed(self) -> bool:
        """Whether a group of brokers agrees on users, in its log."""
        return self._meta.shared

    @property
    def data_version(self) -> DataVersion:
        """The version of what is shown."""
        return self._view.version

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name; not to be changed by readers."""
        return self._view.users

    @property
    def policies(self) -> Mapping[str, Policies]:
        """What users may do, by name; not to be changed by readers."""
        return self._view.policies

    def put(self, user: User) -> None:
        """Make a user, or replace him. Raises CommandError at the limits."""
        self._check_user(user)
        self._change(Verb.PUT, [_user_row(user)])

    def add(self, user: User, policies: Policies) -> None:
        """Make a user with all that he may do, in one change. Raises CommandError at the limits."""
        self._check_user(user)
        self._check_policies(user.name, policies)
        self._change(Verb.PUT, [_user_row(user), _policies_row(user.name, policies)])

    def set_policies(self, name: str, policies: Policies) -> None:
        """Say all that a user may do; nothing removes it. Raises CommandError at the limits."""
        self._check_policies(name, policies)
        self._change(Verb.PUT, [_policies_row(name, policies)])

    def _check_user(self, user: User) -> None:
        users = self._view.users
        if len(user.name) > NAME_LENGTH_MAX or not user.name.isprintable():
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"a user's name has up to {NAME_LENGTH_MAX} characters that can be printed",
            )
        if user.name not in users and len(users) >= USERS_MAX:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this broker keeps at most {USERS_MAX} users")

    def _check_policies(self, name: str, policies: Policies) -> None:
        others = self._view.counted - _count(self._view.policies.get(name, {}))
        if others + _count(policies) > POLICIES_MAX:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this broker keeps at most {POLICIES_MAX} policies")

    def delete(self, name: str) -> None:
        """Remove a user, and what he may do."""
        if name in self._view.users or name in self._view.policies:
            self._change(Verb.DELETE, [name])

    def content(self) -> UsersContent:
        """Return everything, secret keys included: for this broker's file, and for its slaves."""
        return _content(self._view)

    def take_over(self, copied: UsersContent) -> None:
        """Become equal to the master's table, on a slave. Raises HeaderError, and nothing is changed."""
        state = _state(copied)
        known = self._applied
        if (state.users, state.policies, state.version) != (known.users, known.policies, known.version):
            known.copy_from(state)
            self.file.disown()
            self.file.mark()
            self._decides()

    async def save(self) -> None:
        """Return when every change made so far is safe: on disk, or applied in the group of brokers.

        Raises OSError, and CommandError when the lead was lost meanwhile.
        """
        if self._meta.shared:
            await self._meta.settled()
        else:
            await self.file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self.file.close()

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; see MetaTable."""
        if not own and self._view is not self._applied:
            self._view.apply(operation)
        self._applied.apply(operation)
        self.file.mark(operation)
        self._decides()

    def drop(self) -> None:
        """Show what is applied; see MetaTable."""
        if self._view is not self._applied and self._view.version != self._applied.version:
            self._view.copy_from(self._applied)

    def lead(self, *, first: bool) -> None:
        """Propose everything where the group's log has nothing of it, and there is something; see MetaTable."""
        if not first or not (self._view.users or self._view.policies):
            return
        rows = [_user_row(user) for user in self._view.users.values()]
        rows += [_policies_row(name, each) for name, each in self._view.policies.items()]
        self._change(Verb.CLEAR)
        self._change(Verb.PUT, rows)

    def _change(self, verb: Verb, *what: Any) -> None:
        version = next_version(self._view.version, self._clock.now_ms(), self._meta.term)
        operation = [int(verb), int(Table.USERS), packed(version), *what]
        self._meta.propose(operation)
        if self._meta.shared:
            self._view.apply(operation)

    def _decides(self) -> None:
        """Have requests judged by what is applied, and forget what was decided before."""
        self.directory.take(self._applied.users, self._applied.policies)

    def _read(self, loaded: UsersContent) -> None:
        try:
            self._applied.copy_from(_state(loaded))
        except HeaderError as error:
            raise MetadataError(f"{self.file.path}: {error}; put a good copy in its place") from None

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        state = _State(self._applied.version)
        # Users and policies are never changed, so this is all that is done in the loop.
        state.users, state.policies = dict(self._applied.users), dict(self._applied.policies)
        return lambda: (stamped(msgspec.json.encode(_content(state)), stamp),)


def decode(content: bytes) -> UsersContent:
    """Return what a file or an answer holds; raises HeaderError."""
    try:
        return msgspec.json.decode(content, type=UsersContent)
    except (msgspec.DecodeError, RecursionError):
        # The text of the error could quote what is secret.
        raise HeaderError("not a table of users") from None


def _content(state: _State) -> UsersContent:
    return UsersContent(
        state.version,
        [stored_user(user) for user in state.users.values()],
        {name: stored_policies(policies) for name, policies in state.policies.items()},
    )


def _state(content: UsersContent) -> _State:
    state = _State(content.dataVersion)
    try:
        for row in content.users:
            user = read_user(row)
            state.users[user.name] = user
        for name, rows in content.policies.items():
            state.say(name, read_policies(rows))
    except ValueError as error:
        raise HeaderError(f"a user or a policy cannot be read: {error}") from None
    return state


def _count(policies: Policies) -> int:
    return sum(map(len, policies.values()))


def _user_row(user: User) -> list[str]:
    # As text: a META entry is no place for what nests deep.
    return [_USER, user.name, msgspec.json.encode(stored_user(user)).decode()]


def _policies_row(name: str, policies: Policies) -> list[str]:
    text = msgspec.json.encode(stored_policies(policies)).decode() if policies else ""
    return [_POLICIES, name, text]


def _close(path: Path) -> None:
    """Take a file's content from everybody but its owner: a copy that came from elsewhere may be open to others."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(FILE_MODE)
            _log.warning("%s holds secret keys, and others could read it: it is its owner's alone now", path)
    except FileNotFoundError:
        pass
