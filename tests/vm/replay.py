"""Replays the log of a dm-log-writes device onto another device, to any of its entries.

The device then holds what a power failure at that entry may leave. `snapshot` and
`mounted` let others write to it without changing the replay.
"""

import contextlib
import os
import subprocess

import log_writes

# Exit status of a check that found a broken promise.
BROKEN = 3
SNAPSHOT = "replayed"
SECTOR_BYTES = 512  # of the device mapper


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Replay:
    """The `entries` of a log, of which the first `done` are on `device`, which was zeroed."""

    def __init__(self, log, device):
        self.log = log_writes.Log(log)
        self.entries = list(self.log)
        self.device, self.done = device, 0
        self.fd = os.open(device, os.O_RDWR)
        self.sectors = os.lseek(self.fd, 0, os.SEEK_END) // SECTOR_BYTES

    def to(self, end):
        """Applies the entries before number `end`."""
        for entry in self.entries[self.done : end]:
            self.log.apply(entry, self.fd)
        self.done = max(self.done, end)
        os.fsync(self.fd)

    def apply_early(self, entry, runs=None):
        """Applies an entry (or only these runs of its sectors) that `to` will apply again."""
        self.log.apply(entry, self.fd, runs)
        os.fsync(self.fd)

    def changes(self, entry):
        """Returns the sectors of an entry, from 0, whose data differs from the device's."""
        size = self.log.sector_bytes
        data = self.log.data(entry, 0, entry.sectors * size)
        there = os.pread(self.fd, len(data), entry.sector * size)
        return [
            at // size
            for at in range(0, len(data), size)
            if data[at : at + size] != there[at : at + size]
        ]

    @contextlib.contextmanager
    def snapshot(self, scratch):
        """A writable snapshot of the device, its changes on `scratch`."""
        table = f"0 {self.sectors} snapshot {self.device} {scratch} N 8"
        run("dmsetup", "create", SNAPSHOT, "--noudevsync", "--table", table)
        run("dmsetup", "mknodes", SNAPSHOT)
        try:
            yield f"/dev/mapper/{SNAPSHOT}"
        finally:
            run("dmsetup", "remove", "--noudevsync", "--retry", SNAPSHOT)

    @contextlib.contextmanager
    def mounted(self, scratch, folder):
        """A snapshot, mounted at `folder`: that recovers the file system's journal."""
        with self.snapshot(scratch) as device:
            run("mount", "-t", "ext4", device, folder)
            try:
                yield
            finally:
                run("umount", folder)
