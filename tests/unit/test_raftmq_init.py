"""The public names of the package: there when asked for, and not before."""

import json
import subprocess
import sys

import pytest

import raftmq


def test_every_public_name_is_what_the_client_calls_so() -> None:
    for name in raftmq.__all__:
        assert getattr(raftmq, name).__name__ == name


def test_a_name_that_is_none_is_said_so() -> None:
    with pytest.raises(AttributeError, match="'raftmq' has no attribute 'Produser'"):
        raftmq.Produser  # noqa: B018 - asking for it is the point


def test_servers_start_without_the_client() -> None:
    program = "import json, sys, raftmq.cli.main, broker.main; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.check_output([sys.executable, "-c", program], timeout=60))
    assert "broker.server" in modules
    assert [name for name in modules if name.partition(".")[0] == "client"] == []
