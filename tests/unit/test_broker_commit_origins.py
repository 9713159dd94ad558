"""commit_origins.py: for whom a commit speaks that says of itself that another member passed it on."""

from types import SimpleNamespace
from typing import cast

import pytest

from broker.clients import ClientTable
from broker.leader_only import CLIENT_ID, HOP_FLAG
from broker.messages.commit_origins import Origins
from broker.metadata.committers import ANYBODY
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.server import Connection

VICTIM, ASKER = (cast(Connection, SimpleNamespace(closed=False)) for _ in range(2))


@pytest.mark.parametrize("member", [True, False])
def test_only_a_member_commits_in_another_clients_name(member: bool) -> None:
    known = SimpleNamespace(find=lambda _group, _name: SimpleNamespace(connection=VICTIM))
    origins = Origins(cast(ClientTable, known), None, lambda _connection: member)
    request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext={CLIENT_ID: "victim"})
    # A client's own commit is its own, whatever fields it has.
    assert origins.client(ASKER, request, "g") is ASKER
    request.flag |= HOP_FLAG
    assert origins.client(ASKER, request, "g") is (VICTIM if member else ANYBODY)
