"""Where a body of HTTP/1.1 ends (RFC 9112 sections 6.3 and 7.1).

llhttp could find that, too, but it takes whatever it is given and does not say where in it a
message ended: a pipelined request could not be held back until its turn, and every piece of a body
would be copied. Chunk sizes are read as strictly as section 7.1 writes them: hexadecimal digits,
extensions, CRLF; whatever somebody might read differently is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.head import Fields
from gateway.wire.fields import MalformedHead
from gateway.wire.http1.heads import read_trailers

NONE: Final = 0
"""There is no body."""
LENGTH: Final = 1
"""As long as ``content-length`` says."""
CHUNKED: Final = 2
"""In chunks, until the last one."""
UNTIL_CLOSE: Final = 3
"""Until the connection ends, for responses and tunnels."""

_NONE: int = cython.declare(cython.int, NONE)
_LENGTH: int = cython.declare(cython.int, LENGTH)
_CHUNKED: int = cython.declare(cython.int, CHUNKED)
_UNTIL_CLOSE: int = cython.declare(cython.int, UNTIL_CLOSE)

# Where in a chunk the reader stands.
_SIZE: int = cython.declare(cython.int, 0)
_DATA: int = cython.declare(cython.int, 1)
_DATA_END: int = cython.declare(cython.int, 2)
_TRAILERS: int = cython.declare(cython.int, 3)

# Hexadecimal digits of a chunk size: what surely fits in 63 bits.
_MAX_SIZE_DIGITS: int = cython.declare(cython.Py_ssize_t, 15)

_HEX_DIGITS: bytes = cython.declare(bytes, b"0123456789abcdefABCDEF")
_EXTENSION: bytes = cython.declare(
    bytes,
    bytes(
        octet if octet == 9 or (octet >= 0x20 and octet != 0x7F) else octet ^ 0xFF
        for octet in range(256)
    ),
)


class BodyReader:
    """Cuts a body out of what is read. Used again for each message of a connection.

    After :meth:`take`, ``piece`` is what it gave of the body and ``ended`` whether that was the
    end of the message; ``trailers`` are those of a chunked body.
    """

    def __init__(self, max_extensions: int, max_trailers: int, max_fields: int) -> None:
        self.piece = b""
        self.ended = True
        self.trailers: Fields = ()
        self._kind = NONE
        self._state = _SIZE
        self._left = 0
        self._line = b""
        self._max_extensions = max_extensions
        self._max_trailers = max_trailers
        self._max_fields = max_fields
        self._extensions = 0

    def begin(self, kind: cython.int, length: cython.longlong) -> None:
        """Begin a body; ``length`` is its octets where the kind is LENGTH."""
        self._kind = kind
        self._left = length
        self._state = _SIZE
        self._line = b""
        self._extensions = 0
        self.piece = b""
        self.trailers = ()
        self.ended = kind == _NONE or (kind == _LENGTH and length == 0)

    def take(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take from ``data`` from ``i`` on; where the rest begins, which may be the next message.

        Raises MalformedHead for chunks that are not as they must be.
        """
        n: cython.Py_ssize_t = len(data)
        room: cython.Py_ssize_t = n - i
        if self._kind == _CHUNKED:
            return self._take_chunks(data, i)
        if self._kind == _UNTIL_CLOSE:
            self.piece = data[i:] if i else data
            return n
        if room >= self._left:
            room = self._left
            self.ended = True
        self._left -= room
        self.piece = data if i == 0 and room == n else data[i : i + room]
        return i + room

    def at_eof(self) -> cython.bint:
        """Whether the body ends with the connection."""
        return self._kind == _UNTIL_CLOSE

    def _take_chunks(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        n: cython.Py_ssize_t = len(data)
        room: cython.Py_ssize_t
        piece: bytes = b""
        pieces: list[bytes] | None = None
        while i < n and not self.ended:
            if self._state == _DATA:
                room = n - i
                if room > self._left:
                    room = self._left
                self._left -= room
                # Chunks that came together move on together.
                if pieces is not None:
                    pieces.append(data[i : i + room])
                elif piece:
                    pieces = [piece, data[i : i + room]]
                else:
                    piece = data[i : i + room]
                i += room
                if self._left == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                # CR, then LF, which may come later.
                if self._line:
                    if data[i] != 10:
                        raise MalformedHead("chunk data is longer than its size says")
                    self._line = b""
                    self._state = _SIZE
                elif data[i] != 13:
                    raise MalformedHead("chunk data is longer than its size says")
                else:
                    self._line = b"\r"
                i += 1
            elif self._state == _SIZE:
                i = self._size_line(data, i)
            else:
                i = self._trailer_section(data, i)
        self.piece = piece if pieces is None else b"".join(pieces)
        return i

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _plain_size(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a size line that is whole and has no extension: where it ends, -1 for another."""
        n: cython.Py_ssize_t = len(data)
        size: cython.longlong = 0
        start: cython.Py_ssize_t = i
        octet: cython.int
        while i < n:
            octet = data[i]
            if 48 <= octet <= 57:
                size = size * 16 + octet - 48
            elif 97 <= octet <= 102:
                size = size * 16 + octet - 87
            elif 65 <= octet <= 70:
                size = size * 16 + octet - 55
            else:
                break
            i += 1
            if i - start > _MAX_SIZE_DIGITS:
                return -1
        if i == start or i + 1 >= n or data[i] != 13 or data[i + 1] != 10:
            return -1
        self._left = size
        self._state = _DATA if size else _TRAILERS
        return i + 2

    def _size_line(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        end: cython.Py_ssize_t
        if not self._line:
            end = self._plain_size(data, i)
            if end >= 0:
                return end
        end = data.find(b"\n", i)
        if end < 0:
            self._line += data[i:]
            if len(self._line) > self._max_extensions + _MAX_SIZE_DIGITS + 1:
                raise MalformedHead("chunk extensions above http1.max_chunk_extensions")
            if self._line[:1] not in _HEX_DIGITS:
                raise MalformedHead("a chunk size that is no hexadecimal number")
            return len(data)
        line = self._line + data[i:end] if self._line else data[i:end]
        self._line = b""
        if line[-1:] != b"\r":
            raise MalformedHead("a chunk size that does not end with CRLF")
        self._read_size(line[:-1])
        return end + 1

    def _read_size(self, line: bytes) -> None:
        digits, semicolon, extension = line.partition(b";")
        if semicolon:
            self._extensions += len(extension) + 1
            if self._extensions > self._max_extensions:
                raise MalformedHead("chunk extensions above http1.max_chunk_extensions")
            if extension.translate(_EXTENSION) != extension:
                raise MalformedHead("a control character in a chunk extension")
        if not digits or len(digits) > _MAX_SIZE_DIGITS or digits.strip(_HEX_DIGITS):
            raise MalformedHead("a chunk size that is no hexadecimal number")
        self._left = int(digits, 16)
        self._state = _DATA if self._left else _TRAILERS

    def _trailer_section(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        before: cython.Py_ssize_t = len(self._line)
        section = self._line + data[i:]
        # Without fields the section is its empty line alone.
        if section.startswith(b"\r\n"):
            end: cython.Py_ssize_t = 2
        else:
            end = section.find(b"\r\n\r\n", max(0, before - 3))
            end = end + 4 if end >= 0 else -1
        if (end if end >= 0 else len(section)) > self._max_trailers:
            raise MalformedHead("trailers above http1.max_head_size")
        if end < 0:
            self._line = section
            return len(data)
        self._line = b""
        self.trailers = read_trailers(section[:end], self._max_fields)
        self.ended = True
        return i + end - before
