"""Starts fault proxy servers: ours in a thread or a process of its own, Shopify's as a process. Each gives its URL."""

import asyncio
import contextlib
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.host.guard import watch
from chaos.host.interpreter import MODULE
from chaos.host.processes import free_ports
from chaos.proxy.errors import LaunchError
from chaos.proxy.server import HOST, FaultProxyServer
from runtime import loop

SHOPIFY_PROGRAM = "toxiproxy-server"
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


@contextlib.contextmanager
def in_thread(seed: int = 0) -> Iterator[str]:
    """Run our server in a thread with a loop of its own; raises LaunchError."""
    answers: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event] | BaseException] = queue.Queue()

    async def serve() -> None:
        server, stopped = FaultProxyServer(seed), asyncio.Event()
        await server.start(HOST, 0)
        answers.put((f"http://{HOST}:{server.port}", asyncio.get_running_loop(), stopped))
        await stopped.wait()
        await server.close()

    def run() -> None:
        try:
            loop.run(serve())
        except BaseException as error:
            answers.put(error)

    thread = threading.Thread(target=run, name="fault proxies", daemon=True)
    thread.start()
    try:
        answer = answers.get(timeout=START_TIMEOUT_S)
    except queue.Empty:
        raise LaunchError(f"the fault proxies did not start within {START_TIMEOUT_S:g} s") from None
    if isinstance(answer, BaseException):
        raise LaunchError(f"the fault proxies did not start: {answer}") from answer
    url, own_loop, stopped = answer
    try:
        yield url
    finally:
        own_loop.call_soon_threadsafe(stopped.set)
        thread.join(STOP_TIMEOUT_S)


@contextlib.contextmanager
def in_process(seed: int = 0, log: Path | None = None) -> Iterator[str]:
    """Run `python -m chaos.proxy`; raises LaunchError."""
    command = [*MODULE, "chaos.proxy", "--port", "0", "--seed", str(seed)]
    with _process(command, log, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Ends with the process's own end, where it does not start.
        url = process.stdout.readline().decode().strip()
        if not url:
            raise LaunchError(f"the fault proxies did not start: exit code {process.wait(STOP_TIMEOUT_S)}")
        yield url


@contextlib.contextmanager
def shopify(program: str | None = None, log: Path | None = None) -> Iterator[str]:
    """Run Shopify's server, by default the one on PATH; raises LaunchError. It may not answer yet."""
    found = shutil.which(program or SHOPIFY_PROGRAM)
    if found is None:
        raise LaunchError(
            f"{program or SHOPIFY_PROGRAM} is not to be found: install Toxiproxy, or use the fault proxies of RaftMQ"
        )
    (port,) = free_ports(1)
    with _process([found, "-host", HOST, "-port", str(port)], log):
        yield f"http://{HOST}:{port}"


@contextlib.contextmanager
def _process(
    command: Sequence[str], log: Path | None, stdout: int | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program to the end of the block; `log` takes what it prints, beside what `stdout` takes."""
    with contextlib.ExitStack() as stack:
        output = subprocess.DEVNULL if log is None else stack.enter_context(log.open("ab"))
        process = stack.enter_context(
            subprocess.Popen(command, stdout=output if stdout is None else stdout, stderr=output)
        )
        watch(process.pid)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
