"""Reads the log of a dm-log-writes device and replays it onto another device.

The format is that of drivers/md/dm-log-writes.c and
Documentation/admin-guide/device-mapper/log-writes.rst; all little endian:

    sector 0   struct log_write_super { u64 magic, version, nr_entries; u32 sectorsize; }
    then, per entry, one sector with
               struct log_write_entry { u64 sector, nr_sectors, flags, data_len; }
               and, in the same sector, data_len bytes (the name of a mark);
    followed by the nr_sectors of data, but for a discard.

Sectors are of `sectorsize` bytes. The kernel logs a write only when a flush
that came after its completion did (or at once, when it was FUA), so a prefix
of the log is what a power failure leaves that loses all that may be lost.
"""

import os
import struct

SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
MAGIC = 0x6A736677736872
VERSION = 1
FLUSH, FUA, DISCARD, MARK, METADATA = (1 << bit for bit in range(5))
FLAGS_KNOWN = FLUSH | FUA | DISCARD | MARK | METADATA
COPY_BYTES_MAX = 1 << 20


class Entry:
    """One entry: `sector`, `sectors` and `flags` as logged; `mark` or None."""

    def __init__(self, sector, sectors, flags, mark, data_offset):
        self.sector, self.sectors, self.flags = sector, sectors, flags
        self.mark, self.data_offset = mark, data_offset


class Log:
    """The log on the device or file at `path`; iterate for its entries."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        magic, version, self.entries, self.sector_bytes = SUPER.unpack(
            os.pread(self.fd, SUPER.size, 0)
        )
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"{path} holds no dm-log-writes log (magic {magic:#x})")
        if self.sector_bytes not in (512, 4096):
            raise ValueError(f"{path}: sector size {self.sector_bytes}")

    def __iter__(self):
        offset = self.sector_bytes
        for number in range(self.entries):
            head = os.pread(self.fd, self.sector_bytes, offset)
            sector, sectors, flags, data_len = ENTRY.unpack_from(head)
            if flags & ~FLAGS_KNOWN:
                raise ValueError(f"entry {number} has unknown flags {flags:#x}")
            mark = None
            if flags & MARK:
                mark = head[ENTRY.size : ENTRY.size + data_len].rstrip(b"\0").decode("ascii")
            offset += self.sector_bytes
            yield Entry(sector, sectors, flags, mark, offset)
            if not flags & DISCARD:
                offset += sectors * self.sector_bytes

    def apply(self, entry, target):
        """Does to the file descriptor `target` what the entry says."""
        at, left = entry.sector * self.sector_bytes, entry.sectors * self.sector_bytes
        source = entry.data_offset
        while left:
            size = min(left, COPY_BYTES_MAX)
            # A discarded sector may read as anything; here it reads as zeroes.
            data = bytes(size) if entry.flags & DISCARD else os.pread(self.fd, size, source)
            if len(data) != size or os.pwrite(target, data, at) != size:
                raise OSError(f"cannot replay {size} bytes at {at}")
            at, source, left = at + size, source + size, left - size
