"""HTTP/2 frames: numbers and layouts of RFC 9113 sections 4, 6, 7 and 11."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
        PyByteArray_Resize,
    )
    from cython.cimports.cpython.bytes import (
        PyBytes_AS_STRING,
    )
    from cython.cimports.libc.string import memcpy

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

FLAG_ACK: Final = 0x1
FLAG_END_STREAM: Final = 0x1
FLAG_END_HEADERS: Final = 0x4
FLAG_PADDED: Final = 0x8
FLAG_PRIORITY: Final = 0x20

MAX_WINDOW: Final = 2**31 - 1
MAX_STREAM_ID: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_MAX_FRAME_SIZE: Final = 16_384
LARGEST_MAX_FRAME_SIZE: Final = 2**24 - 1


class ErrorCode(IntEnum):
    """RFC 9113 section 7."""

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
    """RFC 9113 section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6
    ENABLE_CONNECT_PROTOCOL = 0x8
    NO_RFC7540_PRIORITIES = 0x9


_HEADER = Struct(">HBBBL").pack
_SETTING = Struct(">HL").pack
_TWO_LONGS = Struct(">LL").pack
_LONG = Struct(">L").pack


def frame_header(
    length: cython.Py_ssize_t,
    kind: cython.int,
    flags: cython.int,
    stream_id: cython.longlong,
) -> bytes:
    """The nine octets before each payload (RFC 9113 section 4.1)."""
    return _HEADER(length >> 8, length & 0xFF, kind, flags, stream_id)


def append_frame(
    out: bytearray,
    kind: cython.int,
    flags: cython.int,
    stream_id: cython.longlong,
    payload: bytes,
) -> None:
    """Append a frame with its payload to ``out``; the caller bounds the payload's size."""
    size: cython.Py_ssize_t = len(payload)
    if not cython.compiled:
        out += _HEADER(size >> 8, size & 0xFF, kind, flags, stream_id)
        out += payload
        return
    # One resize and no temporary object: there are three of these in every exchange.
    at: cython.Py_ssize_t = PyByteArray_GET_SIZE(out)
    PyByteArray_Resize(out, at + 9 + size)
    raw = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out)) + at
    raw[0] = (size >> 16) & 0xFF
    raw[1] = (size >> 8) & 0xFF
    raw[2] = size & 0xFF
    raw[3] = kind
    raw[4] = flags
    raw[5] = (stream_id >> 24) & 0x7F
    raw[6] = (stream_id >> 16) & 0xFF
    raw[7] = (stream_id >> 8) & 0xFF
    raw[8] = stream_id & 0xFF
    memcpy(raw + 9, PyBytes_AS_STRING(payload), size)


@cython.boundscheck(False)
@cython.wraparound(False)
def uint31(data: bytes, i: cython.Py_ssize_t) -> cython.longlong:
    """Four octets at ``i`` without their first bit, which is reserved. The caller checked them."""
    first: cython.longlong = data[i] & 0x7F
    return (first << 24) | (data[i + 1] << 16) | (data[i + 2] << 8) | data[i + 3]


def settings_frame(settings: dict[Setting, int]) -> bytes:
    """A SETTINGS frame (section 6.5)."""
    body = b"".join(_SETTING(key, value) for key, value in settings.items())
    return frame_header(len(body), SETTINGS, 0, 0) + body


SETTINGS_ACK: Final = frame_header(0, SETTINGS, FLAG_ACK, 0)


def ping_frame(payload: bytes, ack: bool = False) -> bytes:
    """A PING frame with its eight octets (section 6.7)."""
    return frame_header(8, PING, FLAG_ACK if ack else 0, 0) + payload


def goaway_frame(last_stream_id: int, code: int, debug: bytes = b"") -> bytes:
    """A GOAWAY frame (section 6.8)."""
    return frame_header(8 + len(debug), GOAWAY, 0, 0) + _TWO_LONGS(last_stream_id, code) + debug


def rst_stream_frame(stream_id: int, code: int) -> bytes:
    """A RST_STREAM frame (section 6.4)."""
    return frame_header(4, RST_STREAM, 0, stream_id) + _LONG(code)


def window_update_frame(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame (section 6.9); ``increment`` is 1 to 2**31 - 1 octets."""
    return frame_header(4, WINDOW_UPDATE, 0, stream_id) + _LONG(increment)
