"""Settings for stores in small files, of which tests fill several, on a disk that may be nearly full."""

SMALL_FILES: dict[str, object] = {
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    # The machine that runs the tests may have a full disk.
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}
