"""docs/security.md as a reader types it: from nothing to a broker, and to a group, with users."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chaos.host.processes import free_ports
from tests.docs.documents import Block, blocks, is_shell, paragraphs
from tests.docs.terminal import Terminal

SECURITY = blocks("docs/security.md")
FILES = [block for block in SECURITY if block.language in {"properties", "yaml"}]
PROGRAMS = [block for block in SECURITY if block.language == "python"]
SINGLE, BY_ADMIN, BY_ALICE, CERTIFICATES, GROUP, MIGRATED, QUOTA, TOO_MUCH = (
    block for block in SECURITY if is_shell(block)
)
PORTS = ("9876", "10911", "10921", "10931", "40911", "40912", "40913")
READY_S = 60.0


class Reader:
    """Somebody in a folder of his own with what the document shows, on ports that nobody has."""

    def __init__(self, folder: Path) -> None:
        self._ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.terminal = Terminal(folder, self.here("127.0.0.1:9876"))
        for block in FILES:
            name = block.text.splitlines()[0].removeprefix("# ")
            path = folder / name
            path.write_text(self.here(block.text))
            path.chmod(0o600)

    def here(self, text: str) -> str:
        for theirs, ours in self._ports.items():
            text = text.replace(theirs, ours)
        return text

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        """Have a server run in the foreground of a terminal until Ctrl-C."""
        with (self.terminal.folder / "servers.log").open("a") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(command)}"],
                cwd=self.terminal.folder,
                env={**self.terminal.environment, "RAFTMQ_CREDENTIALS": ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                yield
            finally:
                server.send_signal(signal.SIGINT)
                assert server.wait(60) == 0, (self.terminal.folder / "servers.log").read_text()[-4000:]

    def says(self, who: str) -> None:
        self.terminal.environment["RAFTMQ_CREDENTIALS"] = f"{who}.credentials"

    def trusts(self, authority: str) -> None:
        self.terminal.environment |= {"RAFTMQ_TLS": "true", "RAFTMQ_TLS_CA": authority}

    def refused(self, *command: str) -> str:
        """Run a command that ends with 1; returns what it says."""
        done = subprocess.run(
            command,
            cwd=self.terminal.folder,
            env=self.terminal.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr

    def until_registered(self, brokers: int) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            done = subprocess.run(
                ["raftmq", "cluster", "list", "--json"],
                cwd=self.terminal.folder,
                env=self.terminal.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            found = json.loads(done.stdout) if done.returncode == 0 else []
            if len(found) == brokers and any(row["id"] == 0 for row in found):
                return
            assert time.monotonic() < deadline, (self.terminal.folder / "servers.log").read_text()[-4000:]
            time.sleep(0.1)


def test_every_block_is_one_of_these() -> None:
    shell = [SINGLE, BY_ADMIN, BY_ALICE, CERTIFICATES, GROUP, MIGRATED, QUOTA, TOO_MUCH]
    assert sorted(SECURITY) == sorted([*FILES, *PROGRAMS, *shell])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("servers", [SINGLE, GROUP], ids=["broker", "group"])
def test_from_nothing_to_users(tmp_path: Path, servers: Block) -> None:
    reader = Reader(tmp_path / "reader")
    starts = [command for (command,) in paragraphs(servers.text)]
    if servers is GROUP:
        reader.terminal.type_all(CERTIFICATES.text)
    with ExitStack() as running:
        for command in starts:
            running.enter_context(reader.serving(command))
        reader.says("admin")
        if servers is GROUP:
            reader.trusts("ca.pem")
        reader.until_registered(len(starts) - 1)
        if servers is GROUP:
            assert "takes TLS only" in reader.refused("env", "-u", "RAFTMQ_TLS", "raftmq", "cluster", "list")
        made = reader.terminal.type_all(BY_ADMIN.text)
        assert "Topic:orders" in made[-1]
        tried, carried, again, shown = reader.terminal.type_all(MIGRATED.text)
        assert "would be made" in tried
        assert "globalWhiteRemoteAddresses (10.10.103.*)" in carried
        assert carried.splitlines()[-1] == "2 made"
        assert again.splitlines()[-1] == "nothing was changed"
        assert "Topic:orders" in shown
        reader.says("alice")
        _, got = reader.terminal.type_all(BY_ALICE.text)
        assert "hello" in got
        (program,) = PROGRAMS
        path = reader.terminal.folder / "program.py"
        path.write_text(reader.here(program.text))
        reader.terminal.run("python", str(path))
        assert "no permission to access Topic:other" in reader.refused("raftmq", "send", "other", "hello")
        reader.says("admin")
        reader.terminal.type_all(QUOTA.text)
        reader.says("alice")
        reader.terminal.type_all(TOO_MUCH.text)
        why = reader.refused("raftmq", "send", "orders", "hello")
        assert "user alice: 10 bytes of sends a second are the quota (quotaUserBytesPerSecond)" in why
        reader.says("admin")
        reader.terminal.type("raftmq send orders hello")
    said = (reader.terminal.folder / "servers.log").read_text()
    assert "a-secret-of" not in said
