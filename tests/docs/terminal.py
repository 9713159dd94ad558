"""A terminal for what documents say: a folder of its own, with the project's command, programs and .venv in it."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from chaos.host.ports import is_free
from chaos.host.processes import free_ports
from tests.docs.documents import ROOT, commands
from tests.docs.treatments import ADDRESS, COMMANDS, WORDS, Instead, NotRun

COMMAND_S = 120.0
NAMESRV_PORT, BROKER_PORTS = 9876, (10911, 10921, 10931)


class Terminal:
    """Types commands in a folder; `address` is where the cluster is that documents have at 127.0.0.1:9876."""

    def __init__(self, folder: Path, address: str = ADDRESS, **variables: str) -> None:
        self.folder = folder
        self._address = address
        home = folder / "home"
        home.mkdir(parents=True)
        # A reader stands in the project's folder: its programs are there, and whatever is written is written here.
        (folder / ".venv").symlink_to(sys.prefix)
        for name in ("examples", "setup", "tests"):
            (folder / name).symlink_to(ROOT / name)
        own = {key: value for key, value in os.environ.items() if key not in {"NAMESRV_ADDR", "PYTEST_ADDOPTS"}}
        self.environment = {
            **own,
            "HOME": str(home),
            "PATH": os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ["PATH"])),
            "FLIGHTS": "1500",
            **({} if address == ADDRESS else {"NAMESRV_ADDR": address}),
            **variables,
        }

    def type(self, command: str) -> str:
        """Run a document's command, as it stands there or as the table has it; return what it printed."""
        treated = COMMANDS.get(command)
        if isinstance(treated, NotRun):
            return ""
        text = treated.run.replace("{root}", str(ROOT)) if isinstance(treated, Instead) else command
        return self.run("bash", "-ec", text.replace(ADDRESS, self._address))

    def type_all(self, text: str) -> list[str]:
        """Run all commands of a shell block."""
        return [self.type(command) for command in commands(text)]

    def program(self, document: str, text: str, name: str) -> Path:
        """Write a document's program into a file here."""
        words: Mapping[str, str] = {ADDRESS: self._address, **WORDS.get(document, {})}
        for old, new in words.items():
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *words: str) -> str:
        """Run a command that must end with 0; return what it printed."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def foreground(self, command: str, until: str) -> Iterator[None]:
        """Have a command run in a terminal of its own, from when it has said `until` to Ctrl-C."""
        with (self.folder / "foreground.txt").open("w+") as said:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            assert process.stdout is not None
            try:
                assert any(until in line for line in process.stdout), (self.folder / "foreground.txt").read_text()
                yield
            finally:
                process.send_signal(signal.SIGINT)
                rest, _ = process.communicate(timeout=COMMAND_S)
            assert process.returncode == 0, rest


@contextlib.contextmanager
def ports_of_documents() -> Iterator[tuple[str, str]]:
    """Yield the address of the cluster that `raftmq local` makes, and the options that it takes for that.

    None while the ports that the documents name are free; else ports that nobody has.
    """
    path = Path(tempfile.gettempdir()) / f"raftmq-documents-{os.getuid()}"
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = all(is_free(port) for port in (NAMESRV_PORT, *BROKER_PORTS))
    except BlockingIOError:
        free = False
    try:
        if free:
            yield ADDRESS, ""
        else:
            (port,) = free_ports(1)
            yield f"127.0.0.1:{port}", f" --namesrv-port {port} --broker-port 0"
    finally:
        os.close(lock)
