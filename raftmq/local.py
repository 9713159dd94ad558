"""A cluster on this machine: one NameServer and one broker, each a real process, all files in one folder."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from raftmq.processes import ServerProcess, broker_process, namesrv_process


class LocalCluster:
    """Use as a context manager: started on entry, stopped in good order on exit."""

    def __init__(
        self,
        folder: Path,
        *,
        namesrv_port: int = 0,
        broker_port: int = 0,
        broker_settings: Mapping[str, object] | None = None,
    ) -> None:
        """Port 0 takes a free one; `broker_settings` are keys of broker.conf."""
        self.folder = folder
        self.namesrv = namesrv_process(folder / "namesrv", port=namesrv_port)
        self.broker = broker_process(
            folder / "broker", namesrv=self.namesrv.address, port=broker_port, settings=broker_settings
        )

    @property
    def address(self) -> str:
        """The NameServer's address, which clients take."""
        return self.namesrv.address

    @property
    def servers(self) -> list[ServerProcess]:
        """All processes, in the order of their start."""
        return [self.namesrv, self.broker]

    def start(self) -> None:
        """Start everything and wait until it serves; raises ProcessError, and then nothing is left running."""
        try:
            for server in self.servers:
                server.start()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop everything in good order, the broker first."""
        for server in reversed(self.servers):
            server.stop()

    def kill(self) -> None:
        """End everything at once."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
