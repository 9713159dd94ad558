"""broker/metadata/users.py: a change of users costs the same with one user and with thousands, and is as safe."""

import json
from pathlib import Path

import pytest

from auth.directory import AccessDirectory
from auth.model import Action, Decision, Policies, PolicyType, User, entry, topic
from broker.metadata import table_file
from broker.metadata.users import UserTable
from runtime.clock import ManualClock
from runtime.durable import replace_file

# Enough that auth.json is beyond JOURNAL_FROM.
MANY = 1000
MAY_SEND: Policies = {PolicyType.CUSTOM: (entry(topic("orders"), [Action.PUB], Decision.ALLOW, ["192.0.2.0/24"]),)}


def table_in(folder: Path) -> UserTable:
    return UserTable(folder / "auth.json", ManualClock(), AccessDirectory())


async def grown(folder: Path, size: int = MANY) -> UserTable:
    """A table with so many users, of whom some may send."""
    folder.mkdir()
    table = table_in(folder)
    for number in range(size):
        table.put(User(f"user-{number}", f"secret-of-{number}"))
    table.set_policies("user-1", MAY_SEND)
    await table.save()
    return table


def killed(folder: Path, target: Path) -> UserTable:
    """What a start finds when the process was killed now."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return table_in(target)


async def test_changes_of_many_users_go_into_a_journal_of_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    before = (folder / "auth.json").read_bytes()
    table.put(User("alice", "alice-secret"))
    await table.save()
    table.set_policies("user-2", MAY_SEND)
    table.set_policies("user-1", {})
    await table.save()
    table.delete("user-3")
    await table.save()
    journal = folder / "auth.journal"
    assert (folder / "auth.json").read_bytes() == before
    assert 0 < journal.stat().st_size < 2000
    assert journal.stat().st_mode & 0o777 == 0o600
    again = killed(folder, tmp_path / "b")
    assert (again.users, again.policies, again.data_version) == (table.users, table.policies, table.data_version)
    assert again.directory.user("alice") == User("alice", "alice-secret")
    assert again.directory.policies("user-2") == MAY_SEND
    assert again.directory.user("user-3") is None
    assert not (tmp_path / "b" / "auth.journal").exists(), "a start writes the file whole"
    await table.close()
    assert not journal.exists(), "so does a stop"
    assert {user["username"] for user in json.loads((folder / "auth.json").read_bytes())["users"]} == table.users.keys()
    assert (folder / "auth.json").stat().st_mode & 0o777 == 0o600
    await again.close()


async def test_a_journal_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    table.put(User("alice", "alice-secret"))
    await table.save()
    journal = folder / "auth.journal"
    content = journal.read_bytes()
    await table.close()
    # As if it had come from elsewhere: what it says is of the past, and it is not left lying about.
    journal.write_bytes(content)
    journal.chmod(0o644)
    again = table_in(folder)
    assert not journal.exists()
    assert again.users == table.users
    await again.close()


async def test_a_change_of_users_costs_the_same_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 0

    def counting(path: Path, content: bytes, mode: int = 0o644) -> None:
        nonlocal whole
        whole += len(content)
        replace_file(path, content, mode)

    async def cost(size: int) -> int:
        nonlocal whole
        folder = tmp_path / str(size)
        table = await grown(folder, size)
        whole = 0
        for number in range(200):
            table.put(User(f"new-{number}", "a secret"))
            await table.save()
        written = whole + (folder / "auth.journal").stat().st_size
        await table.close()
        return written

    monkeypatch.setattr(table_file, "replace_file", counting)
    small, large = await cost(MANY), await cost(5 * MANY)
    assert large <= small * 1.2 + 4096
    assert large < 400 * 200
