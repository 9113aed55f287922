"""gRPC-Web: what gRPC looks like to a browser (PROTOCOL-WEB.md of gRPC).

The messages are framed as in gRPC. What differs: the content type, trailers that come as the last
frame of the body (flag 0x80) because pages can't read HTTP trailers, and the text form, in which
the body is base64 for clients that can't take binary streams.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Final, NamedTuple

from gateway.head import Fields

_GRPC: Final = b"application/grpc"
_WEB: Final = b"application/grpc-web"
_TRAILER_FLAG: Final = b"\x80"


class ContentType(NamedTuple):
    """A content type of gRPC-Web: whether it is the text form, and what follows (``+proto``)."""

    text: bool
    suffix: bytes

    def web(self, grpc: bytes) -> bytes:
        """The content type for a response whose own is ``grpc``."""
        _, plus, message = grpc.lower().partition(b"+")
        suffix = plus + message.partition(b";")[0].strip() if plus else self.suffix
        return (b"application/grpc-web-text" if self.text else _WEB) + suffix

    def grpc(self) -> bytes:
        """The content type of the request as gRPC."""
        return _GRPC + self.suffix


def content_type(value: bytes) -> ContentType | None:
    """Read a content type; None if it is not gRPC-Web's."""
    media = value.partition(b";")[0].strip().lower()
    if not media.startswith(_WEB):
        return None
    rest = media[len(_WEB) :]
    text = rest.startswith(b"-text")
    if text:
        rest = rest[5:]
    if rest and (rest[:1] != b"+" or len(rest) == 1):
        return None
    return ContentType(text, rest)


def is_grpc(value: bytes) -> bool:
    """Whether a response's content type is gRPC's own."""
    media = value.partition(b";")[0].strip().lower()
    return media == _GRPC or media.startswith(_GRPC + b"+")


def trailer_frame(fields: Fields) -> bytes:
    """The last frame of a body: the trailers as lines of HTTP/1.1."""
    lines = b"".join(b"%s: %s\r\n" % field for field in fields)
    return _TRAILER_FLAG + len(lines).to_bytes(4, "big") + lines


def encode_text(data: bytes) -> bytes:
    """One piece of a text body, padded: what is sent must not wait for what comes next."""
    return b64encode(data)


class TextDecoder:
    """A text body back to octets. It may be cut anywhere, and padded wherever its sender
    flushed."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The octets that ``data`` completes. Raises ValueError for what is not base64."""
        data = self._rest + data
        whole = len(data) & ~3
        self._rest = data[whole:]
        if not whole:
            return b""
        data = data[:whole]
        if b"=" not in data:
            return _decode(data)
        pieces = []
        start = 0
        at = data.find(b"=")
        while at >= 0:
            # Padding ends a group of four.
            end = (at | 3) + 1
            pieces.append(_decode(data[start:end]))
            start = end
            at = data.find(b"=", end)
        pieces.append(_decode(data[start:]))
        return b"".join(pieces)

    def end(self) -> None:
        """The body is over. Raises ValueError if a group of four is not whole."""
        if self._rest:
            raise ValueError("base64 that is cut off")


def _decode(data: bytes) -> bytes:
    try:
        return a2b_base64(data, strict_mode=True)
    except Base64Error as error:
        raise ValueError(f"not base64: {error}") from None
