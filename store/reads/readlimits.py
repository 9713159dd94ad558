"""How much one read gives: RocketMQ's limits, by whether the first message can be in memory."""

import os

from store.config import StoreConfig


class ReadLimits:
    """The limits of a store's configuration."""

    def __init__(self, config: StoreConfig) -> None:
        self._memory = (config.maxTransferBytesOnMessageInMemory, config.maxTransferCountOnMessageInMemory)
        self._disk = (config.maxTransferBytesOnMessageInDisk, config.maxTransferCountOnMessageInDisk)
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._memory_bytes = ram * config.accessMessageInMemoryMaxRatio // 100
        self.most = max(self._memory[1], self._disk[1], 1)
        """Messages that no read gives more than, wherever the first one is."""

    def of(self, behind: int, max_count: int, max_bytes: int) -> tuple[int, int]:
        """Return how many messages and bytes go together when the first stands so far behind the log's end."""
        bytes_max, count_max = self._memory if behind <= self._memory_bytes else self._disk
        return min(count_max, max_count), min(bytes_max, max_bytes)
