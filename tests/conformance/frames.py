"""HTTP/2 frames and HPACK blocks as bytes, made by hand: wrong ones are as easy as right ones.

Nothing here looks at the gateway's own codec: these bytes are its independent opposite.
A builder never checks its arguments; only the length field is filled in for the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
DEFAULT_MAX_FRAME_SIZE = 16_384
DEFAULT_TABLE_SIZE = 4_096


class Type(IntEnum):
    """Frame types, RFC 9113 section 6."""

    DATA = 0x0
    HEADERS = 0x1
    PRIORITY = 0x2
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20


class Code(IntEnum):
    """Error codes, RFC 9113 section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Setting(IntEnum):
    """Settings, RFC 9113 section 6.5.2 and RFC 9218 section 2.1."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6
    NO_RFC7540_PRIORITIES = 0x9


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Any frame; ``stream`` may carry the reserved bit."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def data(stream: int, payload: bytes = b"", flags: int = 0, *, padding: int | None = None) -> bytes:
    """DATA; ``padding`` is the number of padding octets, None for an unpadded frame."""
    if padding is not None:
        payload = bytes([padding]) + payload + bytes(padding)
        flags |= PADDED
    return frame(Type.DATA, flags, stream, payload)


def headers(
    stream: int,
    block: bytes,
    flags: int = END_STREAM | END_HEADERS,
    *,
    padding: int | None = None,
    depends_on: int | None = None,
    weight: int = 255,
) -> bytes:
    """HEADERS, with padding and the deprecated priority fields on request."""
    payload = block
    if depends_on is not None:
        payload = struct.pack(">IB", depends_on, weight) + payload
        flags |= PRIORITY_FLAG
    if padding is not None:
        payload = bytes([padding]) + payload + bytes(padding)
        flags |= PADDED
    return frame(Type.HEADERS, flags, stream, payload)


def continuation(stream: int, block: bytes, flags: int = END_HEADERS) -> bytes:
    """CONTINUATION."""
    return frame(Type.CONTINUATION, flags, stream, block)


def priority(
    stream: int, depends_on: int = 0, weight: int = 255, *, exclusive: bool = False
) -> bytes:
    """PRIORITY, ``weight`` as on the wire (one less than meant)."""
    dependency = depends_on | (0x8000_0000 if exclusive else 0)
    return frame(Type.PRIORITY, 0, stream, struct.pack(">IB", dependency, weight))


def rst_stream(stream: int, code: int = Code.CANCEL) -> bytes:
    """RST_STREAM."""
    return frame(Type.RST_STREAM, 0, stream, struct.pack(">I", code))


def settings(
    values: Mapping[Setting, int] | Iterable[tuple[int, int]] = (), flags: int = 0
) -> bytes:
    """SETTINGS; pairs instead of a mapping where one setting comes twice."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return frame(Type.SETTINGS, flags, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def push_promise(stream: int, promised: int, block: bytes) -> bytes:
    """PUSH_PROMISE, which no client may send."""
    return frame(Type.PUSH_PROMISE, END_HEADERS, stream, struct.pack(">I", promised) + block)


def ping(payload: bytes = bytes(8), flags: int = 0) -> bytes:
    """PING."""
    return frame(Type.PING, flags, 0, payload)


def goaway(last_stream: int = 0, code: int = Code.NO_ERROR, debug: bytes = b"") -> bytes:
    """GOAWAY."""
    return frame(Type.GOAWAY, 0, 0, struct.pack(">II", last_stream, code) + debug)


def window_update(stream: int, increment: int) -> bytes:
    """WINDOW_UPDATE."""
    return frame(Type.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


# HPACK (RFC 7541), only what a test needs: literals and bare integers, no state.

WITHOUT_INDEXING = 0x00
INCREMENTAL = 0x40
NEVER_INDEXED = 0x10


def integer(value: int, prefix_bits: int, pattern: int = 0) -> bytes:
    """An integer with an N-bit prefix (section 5.1), ``pattern`` in the bits above the prefix."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes([pattern | value])
    out = bytearray([pattern | limit])
    value -= limit
    while value >= 0x80:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: bytes) -> bytes:
    """A string literal without Huffman coding (section 5.2)."""
    return integer(len(value), 7) + value


def coded_string(coded: bytes) -> bytes:
    """A string literal whose octets the caller has Huffman-coded (or has got wrong on purpose)."""
    return integer(len(coded), 7, 0x80) + coded


def literal(name: bytes | int, value: bytes, representation: int = WITHOUT_INDEXING) -> bytes:
    """A literal field (section 6.2); an int for ``name`` is an index into the tables."""
    bits = 6 if representation == INCREMENTAL else 4
    if isinstance(name, int):
        return integer(name, bits, representation) + string(value)
    return bytes([representation]) + string(name) + string(value)


def indexed(index: int) -> bytes:
    """An indexed field (section 6.1)."""
    return integer(index, 7, 0x80)


def table_size_update(size: int) -> bytes:
    """A dynamic table size update (section 6.3)."""
    return integer(size, 5, 0x20)


def block(*fields: tuple[bytes, bytes]) -> bytes:
    """A field block of literals that neither reads nor changes the dynamic table."""
    return b"".join(literal(name, value) for name, value in fields)


AUTHORITY = (b":authority", b"conformance.test")


def request(
    *more: tuple[bytes, bytes], method: bytes = b"GET", path: bytes = b"/", scheme: bytes = b"http"
) -> bytes:
    """The block of a well-formed request, ``more`` being the fields after the pseudo-fields."""
    pseudo = ((b":method", method), (b":scheme", scheme), (b":path", path), AUTHORITY)
    return block(*pseudo, *more)


def dummy_fields(count: int, value_length: int = 4_000) -> bytes:
    """A block of ``count`` long fields."""
    return block(*((b"x-dummy%d" % n, b"x" * value_length) for n in range(count)))
