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

    def apply(self, entry, target, runs=None):
        """Does to the file descriptor `target` what the entry says.

        With `runs`, applies only these runs (first, count) of its sectors, like a torn write.
        """
        for first, count in runs if runs is not None else [(0, entry.sectors)]:
            self._apply_run(entry, target, first, count)

    def _apply_run(self, entry, target, first, count):
        at = (entry.sector + first) * self.sector_bytes
        done, size = 0, count * self.sector_bytes
        while done < size:
            data = self.data(entry, first * self.sector_bytes + done, min(size - done, COPY_BYTES_MAX))
            if os.pwrite(target, data, at + done) != len(data):
                raise OSError(f"cannot replay {len(data)} bytes at {at + done}")
            done += len(data)

    def data(self, entry, offset, size):
        """Returns `size` bytes, from `offset` on, of the data that the entry writes."""
        if entry.flags & DISCARD:
            return bytes(size)  # A discarded sector may read as anything; here it reads as zeroes.
        data = os.pread(self.fd, size, entry.data_offset + offset)
        if len(data) != size:
            raise OSError(f"the log ends within the data of sector {entry.sector}")
        return data
