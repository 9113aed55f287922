"""Heads and chunks of HTTP/1.1, written (RFC 9112).

What is written of a head is remembered for the same tuple of fields, as the HPACK encoder does: the
tuples that :mod:`gateway.wire.forwarding` makes are kept with the heads they were made of. What
differs from message to message (framing, ``connection``, a request's own fields) follows.

Names and values were checked when their message was read. They are checked again here, because a
line break in one of them would begin a message of its own.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.head import Fields

CHUNKED: Final = 1
"""``transfer-encoding: chunked`` is written."""
NO_LENGTH: Final = 2
"""A ``content-length`` among the fields is left out."""
EMPTY: Final = 4
"""``content-length: 0`` is written."""
CLOSE: Final = 8
"""``connection: close`` is written."""
KEEP_ALIVE: Final = 16
"""``connection: keep-alive`` is written: for HTTP/1.0."""
UPGRADE: Final = 32
"""``connection: upgrade`` and ``upgrade: websocket`` are written."""

_MAX_CACHED: int = cython.declare(cython.Py_ssize_t, 1024)
_MAX_CACHED_OCTETS: int = cython.declare(cython.Py_ssize_t, 4096)

# Written heads by the identity of their fields; the tuple is kept so that its identity is its own.
_CACHE: dict[int, tuple[Fields, bytes, bool]] = cython.declare(dict, {})

_REASONS: dict[bytes, bytes] = cython.declare(
    dict, {b"%d" % status: status.phrase.encode() for status in HTTPStatus}
)


# Size lines of small chunks, which events of a stream are.
_SMALL: int = cython.declare(cython.Py_ssize_t, 4096)
_SIZES: list[bytes] = cython.declare(list, [b"%x\r\n" % size for size in range(4096)])


def _line_octets() -> tuple[bytes, bytes]:
    """Translation tables that keep what may stand in a name and in a request line."""
    token = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = bytes(octet if octet in token else octet ^ 0xFF for octet in range(256))
    target = bytes(
        octet if octet > 0x20 and octet != 0x7F else octet ^ 0xFF for octet in range(256)
    )
    return names, target


_NAME, _TARGET = _line_octets()


def _section(fields: Fields) -> bytes:
    lines: bytearray = bytearray()
    name: bytes
    value: bytes
    for name, value in fields:
        if name[:1] == b":":
            continue
        _check(name, value)
        lines += name
        lines += b": "
        lines += value
        lines += b"\r\n"
    return bytes(lines)


def _check(name: bytes, value: bytes) -> None:
    if not name or name.translate(_NAME) != name:
        raise ValueError("a field name that is no token can't be written")
    if b"\n" in value or b"\r" in value or b"\0" in value:
        raise ValueError("a field value with CR, LF or NUL can't be written")


def _entry(fields: Fields) -> tuple[Fields, bytes, bool]:
    """What is remembered of a tuple of fields: itself, its octets, whether a length is in it."""
    found = _CACHE.get(id(fields))
    if found is not None:
        return found
    if fields[0][0] == b":status":
        start = b"HTTP/1.1 %s %s\r\n" % (fields[0][1], _REASONS.get(fields[0][1], b""))
    else:
        start = _request_line(fields)
    length = False
    for field in fields:
        if field[0] == b"content-length":
            length = True
            break
    entry = (fields, start + _section(fields), length)
    if len(entry[1]) <= _MAX_CACHED_OCTETS and type(fields) is tuple:
        if len(_CACHE) >= _MAX_CACHED:
            _CACHE.clear()
        _CACHE[id(fields)] = entry
    return entry


def _request_line(fields: Fields) -> bytes:
    method = authority = path = b""
    for name, value in fields:
        if name == b":method":
            method = value
        elif name == b":path":
            path = value
        elif name == b":authority":
            authority = value
    if not method or method.translate(_NAME) != method:
        raise ValueError("a method that is no token can't be written")
    if not path or path.translate(_TARGET) != path or authority.translate(_TARGET) != authority:
        raise ValueError("a path or an authority with white space can't be written")
    return b"%s %s HTTP/1.1\r\nhost: %s\r\n" % (method, path, authority)


def has_length(fields: Fields) -> cython.bint:
    """Whether there is a ``content-length`` among the fields."""
    return _entry(fields)[2]


def append_request_head(out: bytearray, fields: Fields, extra: Fields, framing: cython.int) -> None:
    """Write a request head; ``framing`` is of the flags above.

    Raises ValueError for what can't be written; nothing is written then.
    """
    _append(out, fields, extra, framing)


def append_response_head(
    out: bytearray, fields: Fields, extra: Fields, framing: cython.int
) -> None:
    """Write a response head; ``framing`` is of the flags above.

    Raises ValueError for what can't be written; nothing is written then.
    """
    _append(out, fields, extra, framing)


@cython.cfunc
def _append(out: bytearray, fields: Fields, extra: Fields, framing: cython.int) -> None:
    head: bytes = _entry(fields)[1]
    if framing & NO_LENGTH and has_length(fields):
        start = head[: head.find(b"\r\n") + 2]
        host = head[len(start) : head.find(b"\r\n", len(start)) + 2]
        if not host.startswith(b"host: "):
            host = b""
        kept = tuple([field for field in fields if field[0] != b"content-length"])
        head = start + host + _section(kept)
    if extra:
        head += _section(extra)
    out += head
    if framing:
        if framing & CHUNKED:
            out += b"transfer-encoding: chunked\r\n"
        if framing & EMPTY:
            out += b"content-length: 0\r\n"
        if framing & CLOSE:
            out += b"connection: close\r\n"
        if framing & KEEP_ALIVE:
            out += b"connection: keep-alive\r\n"
        if framing & UPGRADE:
            out += b"connection: upgrade\r\nupgrade: websocket\r\n"
    out += b"\r\n"


def append_chunk(out: bytearray, data: bytes) -> None:
    """Write one chunk. ``data`` is not empty: an empty chunk would be the last one."""
    n: cython.Py_ssize_t = len(data)
    out += _SIZES[n] if n < _SMALL else b"%x\r\n" % n
    out += data
    out += b"\r\n"


def append_last_chunk(out: bytearray, trailers: Fields) -> None:
    """Write the last chunk and the trailer section."""
    if not trailers:
        out += b"0\r\n\r\n"
        return
    section = _section(trailers)
    out += b"0\r\n"
    out += section
    out += b"\r\n"
