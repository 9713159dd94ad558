"""What can be broken on this machine: each capability is tried for real, and says why not.

T0 needs no privileges, T1 user namespaces, T2 root. A scenario whose faults need what is missing is skipped, and the
report shows this table, so that nobody takes what did not run for what passed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.faults.base import T0, T1, T2
from chaos.faults.device import CAPABILITY as EXT4
from chaos.faults.freezer import Still, state_of, why_no_cgroup
from chaos.faults.net import CAPABILITY as NETNS
from chaos.host.interpreter import MODULE
from chaos.host.namespaces import environment as import_environment
from chaos.host.namespaces import tool, unshare
from chaos.runs.nemesis import FAULTS

# Seconds that any trial may take.
TRIAL_S = 10.0
EXIT_OF_INJECTED = 42


class Capability(NamedTuple):
    """Something that may be possible here."""

    name: str
    tier: str
    ok: bool
    why: str
    """Why not, and what would help; "" when it is possible."""


def probe() -> list[Capability]:
    """Try everything; takes a second or two, and leaves nothing behind."""
    return [_tried(name, tier, trial) for name, tier, trial in _TRIALS]


def missing(faults: Iterable[str], capabilities: Sequence[Capability]) -> dict[str, str]:
    """Return fault → why it cannot be done here, for those of `faults` that cannot."""
    lacking = {capability.name: capability.why for capability in capabilities if not capability.ok}
    found = {}
    for name in sorted(set(faults)):
        reasons = [f"{need}: {lacking[need]}" for need in FAULTS[name]().needs if need in lacking]
        if reasons:
            found[name] = "; ".join(reasons)
    return found


def _tried(name: str, tier: str, trial: Callable[[], str]) -> Capability:
    try:
        why = trial()
    except subprocess.TimeoutExpired:
        why = f"the trial took longer than {TRIAL_S:g} s"
    except OSError as error:
        why = str(error)
    return Capability(name, tier, not why, why)


def _signals() -> str:
    """Try SIGSTOP and SIGCONT on a child."""
    with _sleeper() as pid:
        still = Still(pid, "probe", cgroup=False)
        proof = still.freeze()
        still.thaw()
        return "" if proof and state_of(pid) else "a process of ours did not stand still at SIGSTOP"


def _freezer() -> str:
    """Try a freezer cgroup, of either version, with a child in it."""
    why = why_no_cgroup()
    if why:
        return why
    with _sleeper() as pid:
        still = Still(pid, "probe-freezer")
        proof = still.freeze()
        still.thaw()
        return "" if "says" in proof else "a process of ours cannot be put into a freezer cgroup; SIGSTOP is used"


def _strace() -> str:
    """Try a system call that fails by `strace -e inject`."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    program = (
        f"import os\ntry: os.fdatasync(1)\nexcept OSError as e: os._exit({EXIT_OF_INJECTED} if e.errno == 5 else 1)"
    )
    with tempfile.TemporaryFile() as output:
        # A file of its own, which fdatasync takes, so that only the injection can make it fail with EIO.
        inject = [strace, "-qq", "-o", os.devnull, "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"]
        done = _run([*inject, sys.executable, "-S", "-c", program], stdout=output)
    return "" if done.returncode == EXIT_OF_INJECTED else f"strace may not trace here: {_last_line(done)}"


def _user_namespace() -> str:
    """Try user, network and mount namespaces without privileges."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return "unshare is not installed (Debian: util-linux)"
    command = [unshare, "--user", "--map-root-user", "--net", "--mount", "true"]
    as_nobody: dict[str, object] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    done = _run(command, **as_nobody)
    return "" if done.returncode == 0 else f"user namespaces are not allowed: {_last_line(done)}"


def _nft() -> str:
    """Try a table of nft's bridge family in a network namespace of its own."""
    for name, package in (("unshare", "util-linux"), ("nft", "nftables")):
        if tool(name) is None:
            return f"{name} is not installed (Debian: apt install {package})"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = _run(["unshare", *user, "--net", str(tool("nft")), "add table bridge raftmq_probe"])
    return "" if done.returncode == 0 else f"nft does not work in a namespace: {_last_line(done)}"


def _cpu_cgroup() -> str:
    """Try a cgroup with a CPU quota."""
    for root, knob in ((Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us"), (Path("/sys/fs/cgroup"), "cpu.max")):
        if not (root / "cgroup.procs").exists():
            continue
        folder = root / f"raftmq-probe-{os.getpid()}"
        folder.mkdir()
        try:
            if (folder / knob).exists():
                (folder / knob).write_text("5000 100000" if knob == "cpu.max" else "5000", encoding="ascii")
                return ""
        finally:
            folder.rmdir()
    return "no cgroup here has a CPU quota; processes are starved by signals"


def _netns() -> str:
    """Try a whole partition: a bridge and two members' namespaces, in namespaces as a run makes them."""
    if shutil.which("unshare") is None:
        return "unshare is not installed (Debian: util-linux)"
    done = _run([*unshare(network=True), *MODULE, "chaos.site.netns"], env=import_environment())
    return "" if done.returncode == 0 else f"no partition can be made in namespaces: {_last_line(done)}"


def _power() -> str:
    """Try a real power loss: ext4 on a loop file that is shut down without its journal being written; and fill it."""
    if os.geteuid() != 0:
        return "only root may mount: run as root"
    for name in ("mkfs.ext4", "mount", "umount"):
        if tool(name) is None:
            return f"{name} is not installed (Debian: e2fsprogs, mount)"
    with tempfile.TemporaryDirectory(prefix="raftmq-probe-") as folder:
        trial = [*unshare(network=False), *MODULE, "chaos.host.loopdisk", folder]
        done = _run(trial, env=import_environment())
    return "" if done.returncode == 0 else f"no file system of its own can lose power: {_last_line(done)}"


_TRIALS: Sequence[tuple[str, str, Callable[[], str]]] = (
    ("signals", T0, _signals),
    ("strace", T0, _strace),
    ("userns", T1, _user_namespace),
    ("nft", T1, _nft),
    (NETNS, T1, _netns),
    ("freezer", T2, _freezer),
    ("cpu-cgroup", T2, _cpu_cgroup),
    (EXT4, T2, _power),
)


@contextlib.contextmanager
def _sleeper() -> Iterator[int]:
    """Run a process that does nothing, and end it."""
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child.pid
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()


def _run(command: Sequence[str], **options: object) -> "subprocess.CompletedProcess[str]":
    keywords: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(  # type: ignore[call-overload, no-any-return] # options of two callers, each of its own
        command, stdin=subprocess.DEVNULL, text=True, timeout=TRIAL_S, check=False, **keywords
    )


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = (done.stderr or done.stdout or "").strip().splitlines()
    return lines[-1] if lines else f"it ended with {done.returncode}"
