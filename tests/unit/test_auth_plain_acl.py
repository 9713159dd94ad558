"""auth/plain_acl.py and auth/plain_acl_file.py: what ACL 1.0's accounts become, and what of a file is refused."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from auth import plain_acl_file
from auth.decision import decide
from auth.model import Action, PolicyType, Resource, ResourceKind, UserType, group, topic
from auth.plain_acl import Migration, NamedPermission, PlainAccount, PlainAcl, migration_of
from auth.plain_acl_file import FILE_BYTES_MAX, plain_acl_files, read_plain_acl
from auth.wire import read_policies, stored_policies
from runtime.config import ConfigError

PUB, SUB = (Action.PUB,), (Action.SUB,)
SECRET = "the-secret-of-alice"


def account(**given: Any) -> PlainAccount:
    return PlainAccount("plain_acl.yml, line 1: accounts[0]", "alice", SECRET, **given)


def named(*texts: str) -> tuple[NamedPermission, ...]:
    return tuple(NamedPermission(*text.split("=")) for text in texts)


def migrated(**given: Any) -> Migration:
    return migration_of([PlainAcl("plain_acl.yml", (account(**given),))])


def policies(found: Migration) -> list[str]:
    """What a user's policies say, a line each."""
    (user,) = found.users
    return [
        f"{kind} {each.resource.key} {'|'.join(each.order)} {each.effect}"
        for kind, entries in user.policies.items()
        for each in entries
    ]


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({}, []),
        ({"topics": named("a=PUB")}, ["Custom Topic:a Pub Allow"]),
        ({"topics": named("a=SUB")}, ["Custom Topic:a Sub Allow"]),
        ({"topics": named("a=PUB|SUB", "b=SUB|PUB")}, ["Custom Topic:a Pub|Sub Allow", "Custom Topic:b Pub|Sub Allow"]),
        ({"topics": named("a=DENY")}, ["Custom Topic:a All Deny"]),
        ({"topics": named("a=PUB", "a=SUB")}, ["Custom Topic:a Sub Allow"]),
        ({"groups": named("g=SUB", "%RETRY%h=SUB")}, ["Custom Group:g Sub Allow", "Custom Group:h Sub Allow"]),
        # ACL 1.0 writes a group as its retry topic, and what topicPerms says of it comes later.
        ({"groups": named("g=SUB"), "topics": named("%RETRY%g=DENY")}, ["Custom Group:g All Deny"]),
        ({"default_topic": "DENY"}, ["Default Topic:* All Deny"]),
        (
            {"default_topic": "PUB|SUB", "default_group": "SUB"},
            ["Default Topic:* Pub|Sub Allow", "Default Group:* Sub Allow"],
        ),
        # A named topic has what is said of it and no more, also where the default has more.
        (
            {"default_topic": "PUB|SUB", "topics": named("a=SUB", "b=PUB|SUB", "c=DENY")},
            [
                "Custom Topic:a Sub Allow",
                "Custom Topic:b Pub|Sub Allow",
                "Custom Topic:c All Deny",
                "Default Topic:a Pub Deny",
                "Default Topic:* Pub|Sub Allow",
            ],
        ),
    ],
)  # fmt: skip
def test_what_an_account_may_becomes_policies(given: dict[str, Any], becomes: list[str]) -> None:
    found = migrated(**given)
    assert policies(found) == becomes
    assert found.notes == ()
    (user,) = found.users
    assert (user.user.name, user.user.secret, user.user.kind) == ("alice", SECRET, UserType.NORMAL)
    # Kept, replicated and sent they are the same.
    if becomes:
        assert read_policies(stored_policies(user.policies)) == user.policies


@pytest.mark.parametrize(
    ("given", "becomes", "told"),
    [
        ({"default_topic": "ANY"}, ["Default Topic:* All Deny"], "defaultTopicPerm: ANY: .* stays denied"),
        ({"topics": named("a=pub")}, ["Custom Topic:a All Deny"], "topicPerms a: pub: .* stays denied"),
        ({"topics": named("a*=PUB")}, [], r"topicPerms a\*: in ACL 1.0 a \* is no pattern"),
        ({"groups": named("*=SUB")}, [], r"groupPerms \*: .* nothing about any group"),
        ({"white_address": "10.0.0.*"}, [], r"from 10\.0\.0\.\* alice could do everything, and unsigned"),
        ({"white_address": "*"}, [], "from everywhere alice could do everything"),
        (
            {"admin": True, "topics": named("a=PUB")},
            ["Custom Topic:a Pub Allow"],
            "bound him: a super user is bound by",
        ),
    ],
)
def test_what_cannot_be_carried_over_is_told(given: dict[str, Any], becomes: list[str], told: str) -> None:
    found = migrated(**given)
    assert policies(found) == becomes
    (note,) = found.notes
    assert note.startswith("plain_acl.yml, line 1: accounts[0]")
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(note)


def test_an_administrator_becomes_a_super_user() -> None:
    found = migrated(admin=True, default_topic="DENY")
    assert found.users[0].user.kind is UserType.SUPER
    assert found.notes == ()


def test_global_addresses_are_told_and_the_first_account_of_a_name_counts() -> None:
    first = PlainAcl("a.yml", (account(default_topic="PUB"),), ("10.10.103.*", "192.168.0.*"))
    found = migration_of([first, PlainAcl("b.yml", (account(admin=True),))])
    assert policies(found) == ["Default Topic:* Pub Allow"]
    white, twice = found.notes
    assert white.startswith("a.yml: globalWhiteRemoteAddresses (10.10.103.*, 192.168.0.*): no address lets anybody in")
    assert "there is an account alice before it" in twice


def test_what_is_too_much_for_a_user_is_refused_and_a_note_is_bounded() -> None:
    most = tuple(NamedPermission(f"t{number}", "PUB") for number in range(1000))
    assert len(policies(migrated(topics=most))) == 1000
    with pytest.raises(ConfigError, match=r"accounts\[0\]: it takes 1001 policies, a user has at most 1000"):
        migrated(topics=most, default_topic="PUB")
    many = PlainAcl("a.yml", (), tuple(f"10.0.0.{number}" for number in range(30)))
    assert "10.0.0.19 and 10 more" in migration_of([many]).notes[0]


WORDS = ("", "DENY", "PUB", "SUB", "PUB|SUB", "ANY")
NOT_SAID = None


def in_acl_1(default: str, own: str | None, needed: Action) -> bool:
    """What ACL 1.0 decides: a name that is said counts entirely, else the default; unknown words deny."""
    words = default if own is NOT_SAID else own
    return needed.upper() in words.split("|") if words in {"PUB", "SUB", "PUB|SUB"} else False


@pytest.mark.parametrize(("default", "own"), list(itertools.product(WORDS, (NOT_SAID, *WORDS[1:]))))
def test_every_topic_and_group_is_decided_as_in_acl_1(default: str, own: str | None) -> None:
    one = () if own is NOT_SAID else (NamedPermission("one", own),)
    found = migrated(default_topic=default, default_group=default, topics=one, groups=one)
    made = found.users[0].policies
    for of, name, needed in itertools.product((topic, group), ("one", "other"), (Action.PUB, Action.SUB)):
        said = own if name == "one" else NOT_SAID
        assert (decide(made, of(name), (needed,), None) is None) == in_acl_1(default, said, needed), (of, name, needed)
        # What ACL 1.0 keeps for administrators is nobody's by this.
        assert decide(made, of(name), (Action.CREATE,), None) is not None
    assert decide(made, Resource(ResourceKind.CLUSTER, "DefaultCluster"), (Action.GET,), None) is not None


GOOD = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*
accounts:
  - accessKey: RocketMQ
    secretKey: 012345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB = PUB|SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
  - accessKey: rocketmq2
    secretKey: "null"
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
- counter: 1
  timestamp: 1600000000000
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plain_acl.yml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("loader", ["SafeLoader", "CSafeLoader"])
def test_a_file_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: str) -> None:
    made = getattr(yaml, loader, None)
    if made is None:
        pytest.skip("PyYAML without libyaml")
    monkeypatch.setattr(plain_acl_file, "_LOADER", made)
    path = written(tmp_path, GOOD)
    found = read_plain_acl(path)
    assert found.white_addresses == ("10.10.103.*", "192.168.0.*")
    first, second = found.accounts
    # A number is the text that stands there.
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "012345678", False)
    assert (first.default_topic, first.default_group, first.white_address) == ("DENY", "SUB", "")
    assert first.topics == named("topicA=DENY", "topicB=PUB|SUB")
    assert first.groups == named("groupA=DENY")
    assert first.where == f"{path}, line 5: accounts[0]"
    assert (second.secret_key, second.admin, second.white_address) == ("null", True, "192.168.1.*")
    assert "012345678" not in repr(found)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "accounts:\n", "accounts: []\n"])
def test_an_empty_file_has_no_accounts(tmp_path: Path, text: str) -> None:
    assert read_plain_acl(written(tmp_path, text)).accounts == ()


ALICE = f"accounts:\n- accessKey: alice\n  secretKey: {SECRET}\n"


@pytest.mark.parametrize("loader", ["SafeLoader", "CSafeLoader"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 2", "this is no YAML: .*expected"),
        ("a: b: c", "this is no YAML: mapping values"),
        ("accounts: \x01", "this is no YAML: "),
        ('"\\UFFFFFFFF"', "this is no YAML: "),
        ('"\\U00110000"', "this is no YAML: "),
        (f"%YAML {'9' * 5000}.1\n--- a", "this is no YAML: "),
        ("- accounts", "line 1: it takes a mapping"),
        ("just words", "line 1: it takes a mapping"),
        ("accounts: alice", "line 1: accounts: it takes a list"),
        ("accounts:\n- alice", r"line 2: accounts\[0\]: it takes a mapping"),
        ("accounts:\n- secretKey: x", r"line 2: accounts\[0\]: an account takes an accessKey"),
        ("accounts:\n- accessKey: alice\n  secretKey: ~", r"line 2: accounts\[0\]: it takes a secretKey"),
        ("accounts:\n- accessKey: [alice]\n  secretKey: x", r"accounts\[0\]\.accessKey: it takes a text"),
        (f'accounts:\n- accessKey: alice\n  secretKey: "{SECRET}\\n"', r"secretKey: it takes .* can be printed"),
        (f"accounts:\n- accessKey: {'a' * 256}\n  secretKey: {SECRET}", r"accessKey: it has more than 255"),
        (ALICE + "  admin: maybe", r"line 4: accounts\[0\]\.admin: it takes true or false"),
        (ALICE + "  admin: {}", r"line 4: accounts\[0\]\.admin: it takes a text"),
        (ALICE + "  topicPerms: a=PUB", r"line 4: accounts\[0\]\.topicPerms: it takes a list"),
        (ALICE + "  topicPerms:\n  - a=b=PUB", r"line 5: accounts\[0\]\.topicPerms\[0\]: it takes name=permission"),
        (ALICE + "  topicPerms:\n  - =PUB", r"topicPerms\[0\]: it takes name=permission"),
        (ALICE + "  topicPerms:\n  - a: PUB", r"topicPerms\[0\]: it takes a text"),
        (ALICE + f"  topicPerms:\n  - {'a' * 256}=PUB", "the name has more than 255 characters"),
        (ALICE + f"  defaultTopicPerm: {'P' * 1025}", "defaultTopicPerm: it takes up to 1024 characters"),
        (ALICE + "  topicPerm:\n  - a=PUB", r"line 5: accounts\[0\]\.topicPerm: no such key; there are accessKey, "),
        (ALICE + f"  secretKey: {SECRET}", "line 4: .*the key secretKey stands twice"),
        (ALICE + "  <<: {admin: true}", "<<: no such key"),
        (ALICE + "  ? [a, b]\n  : c", "a key is a text"),
        (ALICE + "  admin: !!bool true", "line 4: a tag"),
        ("!!python/object/apply:os.system [true]", "line 1: a tag"),
        ("accounts: &all\n- accessKey: a\n  secretKey: b\nglobalWhiteRemoteAddresses: *all", "line 4: an alias"),
        ("accounts: []\n---\naccounts: []", "line 2: a second document"),
        ("[" * 100_000, "lists and mappings are 5 deep at most"),
        ("accounts: " + "{a: " * 10_000, "lists and mappings are 5 deep at most"),
    ],
)  # fmt: skip
def test_what_is_no_account_file_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: str, text: str, told: str
) -> None:
    made = getattr(yaml, loader, None)
    if made is None:
        pytest.skip("PyYAML without libyaml")
    monkeypatch.setattr(plain_acl_file, "_LOADER", made)
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=told) as refused:
        read_plain_acl(path)
    said = str(refused.value)
    assert said.startswith(f"{path}, line ")
    assert "\n" not in said
    assert len(said) < len(str(path)) + 300
    assert SECRET not in said


def test_a_file_that_is_too_long_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl\.yml: it has more than 1048576 bytes"):
        read_plain_acl(written(tmp_path, "#" * (FILE_BYTES_MAX + 1)))
    assert read_plain_acl(written(tmp_path, "#" * FILE_BYTES_MAX)).accounts == ()
    (tmp_path / "plain_acl.yml").write_bytes(b"accounts: \xff")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        read_plain_acl(tmp_path / "plain_acl.yml")
    with pytest.raises(ConfigError, match=r"none\.yml: No such file"):
        read_plain_acl(tmp_path / "none.yml")


def test_the_files_of_a_folder_are_those_that_rocketmq_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain_acl_files(tmp_path) == []
    for name in ("acl/b.yml", "acl/more/a.yaml", "acl/readme.txt", "plain_acl.yml", "tools.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = [path.relative_to(tmp_path).as_posix() for path in plain_acl_files(tmp_path)]
    assert found == ["acl/b.yml", "acl/more/a.yaml", "plain_acl.yml"]
    monkeypatch.setattr(plain_acl_file, "FILES_MAX", 1)
    with pytest.raises(ConfigError, match="holds 2 files of accounts, up to 1"):
        plain_acl_files(tmp_path)


def test_the_default_type_is_the_one_that_is_looked_at_last() -> None:
    assert list(migrated(default_topic="PUB", topics=named("a=SUB")).users[0].policies) == [
        PolicyType.CUSTOM,
        PolicyType.DEFAULT,
    ]
