"""The little of HTTP/2 that load needs (RFC 9113), independent of the gateway's own codec."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4

INITIAL_WINDOW_SIZE: Final = 4
DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = 2**31 - 1

PREFIX_BYTES: Final = 5
"""gRPC's length prefix."""

STAMP: Final = struct.Struct(">Q")
"""The first bytes of each message: when it was sent, in nanoseconds."""

_HEADER: Final = struct.Struct(">BHBBL")


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame, of at most 2**24 - 1 bytes."""
    size = len(payload)
    return _HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def frame_header(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The nine bytes before a payload of ``size`` bytes."""
    return _HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream)


def settings(values: Iterable[tuple[int, int]] = ()) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in values))


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", increment))


def literal(name: str, value: str) -> bytes:
    """A field that touches no table and uses no Huffman code (RFC 7541 section 6.2.2)."""
    return b"\0" + _string(name.encode()) + _string(value.encode())


def _string(text: bytes) -> bytes:
    if len(text) >= 127:
        raise ValueError(f"{len(text)} bytes are too long for this encoder")
    return bytes((len(text),)) + text


def fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A field section."""
    return b"".join(literal(name, value) for name, value in pairs)


class FrameReader:
    """Bytes in, whole frames out."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = b""

    def receive(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes. To be read to the end."""
        if self._kept:
            data = self._kept + data
        i = 0
        n = len(data)
        unpack = _HEADER.unpack_from
        while i + 9 <= n:
            high, low, kind, flags, stream = unpack(data, i)
            end = i + 9 + (high << 16 | low)
            if end > n:
                break
            yield Frame(kind, flags, stream, data[i + 9 : end])
            i = end
        self._kept = data[i:]


def setting(payload: bytes, key: int) -> int | None:
    """The last value of ``key`` in the payload of a SETTINGS frame."""
    found = None
    for i in range(0, len(payload) - 5, 6):
        name, value = struct.unpack_from(">HL", payload, i)
        if name == key:
            found = value
    return found
