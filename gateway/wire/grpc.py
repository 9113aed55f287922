"""gRPC over HTTP/2: message framing, ``grpc-timeout``, ``grpc-message`` and status mappings.

Source: the gRPC project's "gRPC over HTTP2" (``doc/PROTOCOL-HTTP2.md``), "Status codes"
(``doc/statuscodes.md``) and "HTTP to gRPC Status Code Mapping"
(``doc/http-grpc-status-mapping.md``). The gateway moves DATA without looking into it; the message
reader is for features that have to see messages (and for tests).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from gateway.wire.frames import ErrorCode


class Status(IntEnum):
    """The values of ``grpc-status``."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# Statuses


_HTTP_STATUS: Final = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}

# The codes of RFC 9113 section 7 that do not map to INTERNAL. The gRPC text gives none for
# STREAM_CLOSED and HTTP_1_1_REQUIRED, and RFC 9113 lets an unknown code count as INTERNAL_ERROR.
_H2_ERROR: Final[dict[int, Status]] = {
    ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


def http_to_grpc_status(status: int) -> Status:
    """The gRPC status that stands for a response of HTTP ``status`` without a ``grpc-status``."""
    return _HTTP_STATUS.get(status, Status.UNKNOWN)


def h2_error_to_grpc_status(code: int) -> Status:
    """The gRPC status of a call whose server reset the stream with the HTTP/2 error ``code``."""
    return _H2_ERROR.get(code, Status.INTERNAL)


# grpc-timeout


_MAX_DIGITS: Final = 8
_MAX_VALUE: Final = 10**_MAX_DIGITS - 1
# Nanoseconds per unit, finest first.
_UNIT_NS: Final = {
    b"n": 1,
    b"u": 1_000,
    b"m": 1_000_000,
    b"S": 1_000_000_000,
    b"M": 60_000_000_000,
    b"H": 3_600_000_000_000,
}


def parse_timeout(value: bytes) -> float:
    """The seconds of a ``grpc-timeout`` value: one to eight digits and a unit of ``H M S m u n``.

    Zero is taken (0.0: already expired), though the text asks for a positive number, because
    clients send it. Raises ValueError.
    """
    digits = value[:-1]
    unit = _UNIT_NS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(value) > _MAX_DIGITS + 1:
        raise ValueError("grpc-timeout is not 1 to 8 digits and a unit of H M S m u n")
    return int(digits) * unit / 1e9


def format_timeout(seconds: float) -> bytes:
    """A ``grpc-timeout`` of at most ``seconds``, in the finest unit that fits in eight digits.

    It rounds down, so that the next hop never believes in more time than there is, but never to
    zero: what is below one nanosecond, zero and negative numbers included, becomes ``1n``. More
    than 99999999 hours (infinity included) becomes ``99999999H``. NaN raises ValueError.
    """
    if seconds != seconds:
        raise ValueError("a timeout can't be NaN")
    if seconds > _MAX_VALUE * 3600.0:
        return b"%dH" % _MAX_VALUE
    if seconds < 1e-9:
        return b"1n"
    nanoseconds = int(seconds * 1e9)
    for letter, unit in _UNIT_NS.items():
        count = nanoseconds // unit
        if count <= _MAX_VALUE:
            return b"%d%b" % (count, letter)
    return b"%dH" % _MAX_VALUE


# grpc-message


_ESCAPES: Final = tuple(
    bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
    for byte in range(256)
)
_PLAIN: Final = bytes(byte for byte in range(0x20, 0x7F) if byte != 0x25)
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def percent_encode(text: str) -> bytes:
    """``text`` as a ``grpc-message``: UTF-8 with all but 0x20-0x7E, and ``%``, as ``%XX``.

    A space at either end is encoded too: the gRPC text allows it as it is, but RFC 9113
    section 8.2.1 makes a field value that begins or ends with one malformed. What UTF-8 can't
    hold (lone surrogates) becomes ``?``.
    """
    raw = text.encode("utf-8", "replace")
    if not raw.translate(None, _PLAIN) and raw[:1] != b" " and raw[-1:] != b" ":
        return raw
    escaped = [_ESCAPES[byte] for byte in raw]
    for end in (0, -1):
        if escaped[end] == b" ":
            escaped[end] = b"%20"
    return b"".join(escaped)


def percent_decode(value: bytes) -> str:
    """The text of a ``grpc-message``. Never fails: the gRPC text forbids losing it to an error.

    A ``%`` that two hexadecimal digits do not follow stays as it is; bytes that are not UTF-8
    become U+FFFD.
    """
    first, *rest = value.split(b"%")
    if not rest:
        return first.decode("utf-8", "replace")
    parts = [first]
    for part in rest:
        if len(part) >= 2 and part[0] in _HEX and part[1] in _HEX:
            parts.append(bytes((int(part[:2], 16),)))
            parts.append(part[2:])
        else:
            parts.append(b"%")
            parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


# Length-prefixed messages


PREFIX_LENGTH: Final = 5
"""Bytes before each message: one for the compressed flag, four for the length."""


class Message(NamedTuple):
    """One length-prefixed message. ``compressed`` says that ``payload`` is in the stream's
    ``grpc-encoding``; it is not decompressed here."""

    compressed: bool
    payload: bytes


class MessageError(ValueError):
    """DATA that is not a sequence of length-prefixed messages within the size limit.

    ``status`` is the gRPC status that fits it.
    """

    def __init__(self, reason: str, status: Status) -> None:
        super().__init__(reason)
        self.status = status


def message_prefix(compressed: bool, length: int) -> bytes:
    """The five bytes before a message of ``length`` bytes (0 to 2**32 - 1; else OverflowError)."""
    return (b"\x01" if compressed else b"\x00") + length.to_bytes(4, "big")


class MessageReader:
    """Splits the DATA of one direction of one stream into messages, however it is cut.

    It holds no more than what was received of one unfinished message: a prefix that announces
    more than ``max_size`` bytes of payload is refused before any of them is kept.
    """

    __slots__ = ("_broken", "_buffer", "max_size")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()
        self._broken = False

    @property
    def at_boundary(self) -> bool:
        """True when no message is half received: the only place where a stream may end well."""
        return not self._buffer

    def receive(self, data: bytes | bytearray | memoryview) -> list[Message]:
        """The messages that ``data`` completes, in order.

        Raises MessageError: INTERNAL for a flag other than 0 and 1, RESOURCE_EXHAUSTED for a
        message above ``max_size``. Messages completed before the fault in the same ``data`` are
        lost with it, and the reader can't be used afterwards.
        """
        if self._broken:
            raise MessageError("the message framing was already lost", Status.INTERNAL)
        buffer = self._buffer
        buffer += data
        messages: list[Message] = []
        start = 0
        available = len(buffer)
        while available - start >= PREFIX_LENGTH:
            flag = buffer[start]
            length = int.from_bytes(buffer[start + 1 : start + PREFIX_LENGTH], "big")
            if flag > 1:
                self._broken = True
                raise MessageError(f"compressed flag is {flag}, not 0 or 1", Status.INTERNAL)
            if length > self.max_size:
                self._broken = True
                raise MessageError(
                    f"message of {length} bytes, the limit is {self.max_size}",
                    Status.RESOURCE_EXHAUSTED,
                )
            end = start + PREFIX_LENGTH + length
            if end > available:
                break
            messages.append(Message(flag == 1, bytes(buffer[start + PREFIX_LENGTH : end])))
            start = end
        del buffer[:start]
        return messages
