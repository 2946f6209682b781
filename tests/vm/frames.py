"""Reads packets of `weir record`'s source generate:packets from a pcapng file in memory.

A frame has 14 bytes of Ethernet, 20 of IPv4, 8 of UDP and its number (8 bytes, big
endian). Each later byte is its offset in the frame modulo 251. The pcapng file must be
little endian (draft-ietf-opsawg-pcapng, sections 3 and 4).

Does no I/O of its own.
"""

import struct

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D
OPTION_RESOLUTION, OPTION_DROPPED = 9, 4
NANOSECONDS = b"\x09"
BLOCK = struct.Struct("<II")
STATISTICS_HEAD = struct.Struct("<III")  # interface, time (high, low)
PACKET_HEAD = struct.Struct("<IIIII")  # interface, time (high, low), captured, original length
OPTION = struct.Struct("<HH")
NUMBER = struct.Struct(">Q")
NUMBER_AT = 42


def _options(data):
    """Yields code and value of each option."""
    at = 0
    while at + OPTION.size <= len(data):
        code, length = OPTION.unpack_from(data, at)
        if code == 0:
            return
        at += OPTION.size
        yield code, data[at : at + length]
        at += (length + 3) & ~3


def read(data, frame_bytes):
    """Yields (number, ns since 1970) of each packet, and (None, time) of each statistics block.

    Raises ValueError if the file is malformed, or a packet differs from the generated one.
    """
    tail = bytes(place % 251 for place in range(frame_bytes))[NUMBER_AT + NUMBER.size :]
    data, at = memoryview(data), 0
    while at < len(data):
        kind, length = BLOCK.unpack_from(data, at)
        if length < 12 or length % 4 or at + length > len(data):
            raise ValueError(f"a pcapng block of {length} bytes at {at} of {len(data)}")
        body = data[at + BLOCK.size : at + length - 4]
        if kind == SECTION and int.from_bytes(body[:4], "little") != BYTE_ORDER_MAGIC:
            raise ValueError("the pcapng file is not little endian")
        if kind == INTERFACE and (OPTION_RESOLUTION, NANOSECONDS) not in _options(body[8:]):
            raise ValueError("times are not in nanoseconds")
        if kind == STATISTICS:
            _, high, low = STATISTICS_HEAD.unpack_from(body)
            yield None, high << 32 | low
        if kind == PACKET:
            yield _packet(body, frame_bytes, tail)
        at += length


def _packet(body, frame_bytes, tail):
    _, high, low, captured, original = PACKET_HEAD.unpack_from(body)
    frame = body[PACKET_HEAD.size :][:captured]
    number = NUMBER.unpack_from(frame, NUMBER_AT)[0]
    if captured != frame_bytes or original != frame_bytes or frame[-len(tail) :] != tail:
        raise ValueError(f"packet {number} is not as it was generated")
    for code, value in _options(body[PACKET_HEAD.size + ((captured + 3) & ~3) :]):
        if code == OPTION_DROPPED and any(value):
            raise ValueError(f"packets were lost before packet {number}")
    return number, high << 32 | low
