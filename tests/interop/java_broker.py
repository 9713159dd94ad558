"""The real RocketMQ's broker as a process; raftmq/bench/peers/maven.py brings its jars."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from chaos.host.processes import HOST, free_ports
from runtime.config import format_properties

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 90
POLL_S = 0.05
STARTED = "boot success"
# RocketMQ refuses a send that has waited for 200 ms, or for 1 s behind another: on a busy machine, any.
PATIENCE = {"waitTimeMillsInSendQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000}


class JavaBroker:
    """RocketMQ's broker on a store folder."""

    def __init__(self, folder: Path, store: Path, jars: str, namesrv: str, settings: Mapping[str, object]) -> None:
        """`folder` takes its configuration, logs and output."""
        self._home = folder
        self._log = folder / "java.log"
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        config = folder / "broker.conf"
        values = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": HOST,
            "listenPort": port,
            "namesrvAddr": namesrv,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "brokerRole": "ASYNC_MASTER",
            **PATIENCE,
            **settings,
        }
        config.write_text(format_properties(values))
        self._command = [
            "java", "-Xms256m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC", f"-Duser.home={folder}", "-cp", jars,
            "org.apache.rocketmq.broker.BrokerStartup", "-c", str(config),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it says that it serves."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, "ROCKETMQ_HOME": str(self._home)},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while STARTED not in self.said():
            assert self._process.poll() is None, f"RocketMQ's broker ended:\n{self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"RocketMQ's broker does not start:\n{self.said()[-3000:]}"
            time.sleep(POLL_S)

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop it in good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
