"""Configuration of the store: RocketMQ's MessageStoreConfig keys that are honoured, with its defaults."""

from dataclasses import dataclass
from pathlib import Path

from runtime.config import ConfigError

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
# RocketMQ clamps the two ratios into these (percent of the file system).
WARNING_RATIO_RANGE = (35, 90)
FORCIBLY_RATIO_RANGE = (30, 85)
QUEUE_ENTRY_BYTES = 20
# A file must hold a record of the largest size and the blank behind it; tests use small files with small messages.
LOG_FILE_BYTES_MIN = 4096
# Forty days; and what a slot of the timer may be long, ms.
TIMER_DELAY_SEC_MAX = 40 * 24 * 3600
TIMER_PRECISION_MS = (10, 60_000)


@dataclass(frozen=True)
class StoreConfig:
    """Units: bytes for sizes, ms for intervals unless the comment says otherwise."""

    storePathRootDir: str = str(Path.home() / "store")
    storePathCommitLog: str = ""  # default: <storePathRootDir>/commitlog
    mappedFileSizeCommitLog: int = 1024 * 1024 * 1024
    mappedFileSizeConsumeQueue: int = 300_000 * QUEUE_ENTRY_BYTES
    maxHashSlotNum: int = 5_000_000
    maxIndexNum: int = 20_000_000
    messageIndexEnable: bool = True
    maxMsgsNumBatch: int = 64  # records a query by key answers at most
    defaultQueryMaxNum: int = 32
    maxMessageSize: int = 4 * 1024 * 1024  # body; the whole record may take 64 KiB more

    brokerRole: str = "ASYNC_MASTER"
    flushDiskType: str = ASYNC_FLUSH
    syncFlushTimeout: int = 5000
    flushIntervalCommitLog: int = 500
    flushCommitLogLeastPages: int = 4  # pages of 4 KiB that must be dirty before the interval flushes
    flushCommitLogThoroughInterval: int = 10_000  # flushes whatever is dirty
    kernelSyncEnable: bool = True  # what is asked for is synced by the kernel (AIO) where it can, not by a thread

    checkCRCOnRecover: bool = True
    maxRecoveryCommitlogFiles: int = 30

    scrubBytesPerSecond: int = 2 * 1024 * 1024  # of the log, read again and checked in the background; 0: none

    deleteWhen: str = "04"  # hours of the day, separated by ";"
    fileReservedTime: int = 72  # hours
    deleteFileBatchMax: int = 10
    cleanResourceInterval: int = 10_000
    cleanFileForciblyEnable: bool = True
    diskMaxUsedSpaceRatio: int = 75  # percent: expired files go whatever the hour
    diskSpaceCleanForciblyRatio: int = 85  # percent: the oldest files go even before they expire
    diskSpaceWarningLevelRatio: int = 90  # percent: writes are refused

    maxTransferBytesOnMessageInMemory: int = 256 * 1024
    maxTransferCountOnMessageInMemory: int = 32
    maxTransferBytesOnMessageInDisk: int = 64 * 1024
    maxTransferCountOnMessageInDisk: int = 8
    accessMessageInMemoryMaxRatio: int = 40  # percent of RAM behind the end of the log that counts as memory
    maxFilterMessageSize: int = 16_000  # bytes of queue entries that one read scans at most

    messageDelayLevel: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flushDelayOffsetInterval: int = 10_000

    timerWheelEnable: bool = True  # false: timer messages are refused
    timerMaxDelaySec: int = 3 * 24 * 3600  # at most 40 days
    timerPrecisionMs: int = 1000
    timerRollWindowSlot: int = 172_800  # of timerPrecisionMs: who waits for longer is stored anew meanwhile

    @property
    def root(self) -> Path:
        """The store folder."""
        return Path(self.storePathRootDir)

    @property
    def log_folder(self) -> Path:
        """The folder of the CommitLog files."""
        return Path(self.storePathCommitLog) if self.storePathCommitLog else self.root / "commitlog"

    @property
    def warning_ratio(self) -> float:
        """Used part of the disk from which writes are refused, 0 to 1."""
        return _clamp(self.diskSpaceWarningLevelRatio, WARNING_RATIO_RANGE) / 100

    @property
    def forcibly_ratio(self) -> float:
        """Used part of the disk from which files are removed before they expire, 0 to 1."""
        return _clamp(self.diskSpaceCleanForciblyRatio, FORCIBLY_RATIO_RANGE) / 100

    def validate(self) -> None:
        """Raise ConfigError for values that the store cannot work with."""
        if self.flushDiskType not in {ASYNC_FLUSH, SYNC_FLUSH}:
            raise ConfigError(f"flushDiskType={self.flushDiskType}: it takes {ASYNC_FLUSH} or {SYNC_FLUSH}")
        if "," in self.storePathCommitLog:
            raise ConfigError("storePathCommitLog: several folders are not supported; name one")
        if self.mappedFileSizeCommitLog < LOG_FILE_BYTES_MIN:
            raise ConfigError(f"mappedFileSizeCommitLog takes at least {LOG_FILE_BYTES_MIN} bytes")
        if self.mappedFileSizeConsumeQueue < QUEUE_ENTRY_BYTES:
            raise ConfigError(f"mappedFileSizeConsumeQueue takes at least {QUEUE_ENTRY_BYTES} bytes")
        for key in (
            "maxHashSlotNum",
            "maxMessageSize",
            "flushIntervalCommitLog",
            "deleteFileBatchMax",
            "flushDelayOffsetInterval",
            "timerMaxDelaySec",
            "timerRollWindowSlot",
        ):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes a number of at least 1")
        if self.timerMaxDelaySec > TIMER_DELAY_SEC_MAX:
            raise ConfigError(f"timerMaxDelaySec={self.timerMaxDelaySec}: it takes {TIMER_DELAY_SEC_MAX} at most")
        if not TIMER_PRECISION_MS[0] <= self.timerPrecisionMs <= TIMER_PRECISION_MS[1]:
            low, high = TIMER_PRECISION_MS
            raise ConfigError(f"timerPrecisionMs={self.timerPrecisionMs}: it takes {low} to {high}")
        if self.scrubBytesPerSecond < 0:
            raise ConfigError(f"scrubBytesPerSecond={self.scrubBytesPerSecond}: it takes a number of bytes, or 0")
        if self.maxIndexNum < 2:
            raise ConfigError("maxIndexNum takes at least 2")
        hours = [hour.strip() for hour in self.deleteWhen.split(";") if hour.strip()]
        if not hours or any(not hour.isdigit() or int(hour) > 23 for hour in hours):
            raise ConfigError(f"deleteWhen={self.deleteWhen}: it takes hours from 00 to 23, separated by ';'")


def _clamp(value: int, limits: tuple[int, int]) -> int:
    low, high = limits
    return min(max(value, low), high)
