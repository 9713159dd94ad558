"""What every client has in common: it is started, used and closed, best by ``async with``."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifecycle(ABC):
    """``async with`` starts on entry and closes on exit."""

    @abstractmethod
    async def start(self) -> None:
        """Connect and begin."""

    @abstractmethod
    async def close(self) -> None:
        """End in good order."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
