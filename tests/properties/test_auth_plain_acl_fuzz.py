"""Whatever an account file of ACL 1.0 holds: accounts come out, or one ConfigError of one line that names the file."""

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from auth import plain_acl_file
from auth.plain_acl import migration_of
from auth.plain_acl_file import read_plain_acl
from runtime.config import ConfigError

GOOD = """\
globalWhiteRemoteAddresses:
- 10.0.0.*
- 192.168.0.{1,2}
accounts:
- accessKey: alice
  secretKey: 'a-secret-of-alice'
  admin: no
  defaultTopicPerm: PUB|SUB
  topicPerms: [orders=SUB, "pay\\u00e9=DENY", a*=PUB]
  groupPerms:
  - g=SUB  # a comment
- {accessKey: bob, secretKey: 012345, whiteRemoteAddress: ~, admin: true}
"""
PIECES = [
    "accounts:\n",
    "- ",
    "  ",
    "[",
    "{",
    "}",
    "]",
    ": ",
    "&a ",
    "*a",
    "!!int ",
    "|\n",
    "? ",
    "\t",
    "---\n",
    '"\\U',
    "=",
]
pieces = st.one_of(st.sampled_from(PIECES), st.text(max_size=8), st.sampled_from(GOOD.splitlines(keepends=True)))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """An account file with some parts cut out and others put in."""
    text = GOOD
    for _ in range(draw(st.integers(1, 5))):
        at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        text = text[:at] + draw(pieces) + text[at + cut :]
    return text


@pytest.mark.parametrize("loader", sorted({plain_acl_file._LOADER.__name__, "SafeLoader"}))
@given(text=st.one_of(mutated(), st.lists(pieces, max_size=30).map("".join)))
@example(text=GOOD)
@example(text='"\\UFFFFFFFF"')
def test_fuzz_a_file_is_accounts_or_one_line(loader: str, text: str) -> None:
    with TemporaryDirectory() as folder, patch.object(plain_acl_file, "_LOADER", getattr(yaml, loader)):
        path = Path(folder) / "plain_acl.yml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            migrated = migration_of([read_plain_acl(path)])
        except ConfigError as error:
            said = str(error)
            assert text != GOOD
            assert said.startswith(str(path))
            assert said.isprintable()
            assert len(said) < len(str(path)) + 400
        else:
            assert all(note.isprintable() for note in migrated.notes)
            assert all(each.user.name and each.user.secret for each in migrated.users)
            assert (len(migrated.users) == 2) or text != GOOD
