"""Users from ACL 1.0 at a broker's start: migrateAuthFromV1Enabled=true, as RocketMQ 5 has it.

plain_acl.yml and the files under acl/ are read at the start, and what cannot be used ends it. Whoever is to change the
table of users then makes those that there are none of: a broker without a group before it serves, in a Raft group the
member that leads, through the log. Nobody who is there already is changed, and what was made once in this process is
not made again. A later start makes again whom an administrator has deleted, as RocketMQ does: the key is to be taken
out.
"""

import logging
from pathlib import Path

from auth.plain_acl import MigratedUser, Migration, migration_of
from broker.metadata.users import UserTable
from broker.settings.config import BrokerConfig
from broker.settings.secret_files import OTHERS_MAY
from remoting.errors import CommandError

_log = logging.getLogger(__name__)

KEY = "migrateAuthFromV1Enabled"
# Names of users in one line of the log.
NAMES_MAX = 20


class StartMigration:
    """The accounts that are still to become users."""

    def __init__(self, found: Migration, table: UserTable) -> None:
        self._left: tuple[MigratedUser, ...] = found.users
        self._table = table

    @property
    def waits(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._left)

    def propose(self) -> tuple[MigratedUser, ...]:
        """Make the users that there are none of, each with what he may do; returns those that could not be made.

        To be called by who leads.
        """
        table = self._table
        made: list[str] = []
        failed: list[str] = []
        left: list[MigratedUser] = []
        for each in self._left:
            name = each.user.name
            if name in table.users or table.directory.user(name) is not None:
                continue
            try:
                table.add(each.user, each.policies)
            except CommandError as error:
                failed.append(f"{name} ({error.remark})")
                left.append(each)
            else:
                made.append(name)
        if failed:
            _log.error("%s: users that could not be made: %s", KEY, _few(failed))
        if made:
            _log.warning("%s: users made of ACL 1.0's accounts: %s; take the key out now", KEY, _few(made))
        return tuple(left)

    async def run(self) -> None:
        """Make them, and return when that is safe; with the lead lost meanwhile it is left for the next time.

        Raises OSError when the table cannot be written.
        """
        if not self._left:
            return
        left = self.propose()
        try:
            await self._table.save()
        except CommandError as error:
            _log.warning("%s: not agreed upon (%s): whoever leads next makes the users", KEY, error.remark)
        else:
            self._left = left


def start_migration(config: BrokerConfig, table: UserTable) -> StartMigration:
    """Read the files that the configuration asks for, none when it asks for none. Raises ConfigError."""
    if not config.migrateAuthFromV1Enabled:
        return StartMigration(Migration(), table)
    # Few brokers ask for it, and PyYAML takes its time to load.
    from auth.plain_acl_file import FILE_NAME, MORE_FOLDER, plain_acl_files, read_plain_acl

    folder = config.plain_acl_folder()
    paths = plain_acl_files(folder)
    if not paths:
        _log.warning("%s=true, and there is no %s and no %s/ in %s", KEY, FILE_NAME, MORE_FOLDER, folder)
    for path in paths:
        _tell_open(path)
    found = migration_of([read_plain_acl(path) for path in paths])
    for note in found.notes:
        _log.warning("not carried over from ACL 1.0: %s", note)
    return StartMigration(found, table)


def _tell_open(path: Path) -> None:
    """Say it when others may read or change a file of secret keys: where ACL 1.0 was in use that is how it was."""
    if path.stat().st_mode & OTHERS_MAY:
        _log.warning("%s holds secret keys, and any user of this machine may read or change it: chmod 600", path)


def _few(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
