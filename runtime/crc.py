"""CRC-32 as zlib, RocketMQ and Java have it, computed by ISA-L: the same number, two to four times as fast."""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
