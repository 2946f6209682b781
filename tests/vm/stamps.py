"""Stamped blocks: what a write put where, told from the bytes alone.

A block is 4096 bytes: one 32-byte stamp (magic, seed, block, version; little
endian) repeated. A sector of 512 bytes is whole when its 16 stamps are equal,
so that a torn block is seen, and told sector by sector.

Does no I/O of its own.
"""

import struct

BLOCK_BYTES = 4096
SECTOR_BYTES = 512
STAMP = struct.Struct("<8sQQQ")
MAGIC = b"stamp\0\0\1"
STAMPS_PER_BLOCK = BLOCK_BYTES // STAMP.size
STAMPS_PER_SECTOR = SECTOR_BYTES // STAMP.size
SECTORS_PER_BLOCK = BLOCK_BYTES // SECTOR_BYTES

assert STAMP.size == 32


def block_bytes(seed, block, version):
    """The content of one block."""
    return STAMP.pack(MAGIC, seed, block, version) * STAMPS_PER_BLOCK


def versions(content, seed, block):
    """The set of versions found in a block's sectors; 0 for a zero sector.

    Raises ValueError for a sector that is neither zero nor this block's stamp.
    """
    assert len(content) == BLOCK_BYTES
    if content == content[: STAMP.size] * STAMPS_PER_BLOCK:
        return {_version(content[: STAMP.size], seed, block)}
    found = set()
    for sector in range(SECTORS_PER_BLOCK):
        part = content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]
        if part != part[: STAMP.size] * STAMPS_PER_SECTOR:
            raise ValueError(f"sector {sector} of block {block} is torn")
        found.add(_version(part[: STAMP.size], seed, block))
    return found


def _version(stamp, seed, block):
    if not any(stamp):
        return 0
    magic, stamp_seed, stamp_block, version = STAMP.unpack(stamp)
    if (magic, stamp_seed, stamp_block) != (MAGIC, seed, block):
        raise ValueError(f"block {block} holds what was never written there: {stamp.hex()}")
    return version
