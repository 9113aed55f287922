"""gzip for those who accept it: whether a message may be compressed, and the streams that do it.

Compressing changes what a client sees only if it asked for it (RFC 9110 section 12.5.3) and if the
response allows it. What a model streams is never compressed: an event is small, and its place in
time is what it is worth.
"""

from __future__ import annotations

import zlib
from typing import Final

from gateway.config import Compression
from gateway.head import Field, Fields

_GZIP_WBITS: Final = 31
_TEXTUAL: Final = frozenset(
    (
        b"application/json",
        b"application/javascript",
        b"application/ecmascript",
        b"application/xml",
        b"application/yaml",
        b"application/x-yaml",
        b"application/toml",
        b"application/graphql",
        b"application/openmetrics-text",
        b"image/svg+xml",
    )
)
_STREAMED: Final = frozenset((b"text/event-stream", b"application/x-ndjson"))
_WITHOUT: Final = frozenset((b"204", b"205", b"206", b"304"))


def accepts_gzip(accept_encoding: bytes | None) -> bool:
    """Whether ``accept-encoding`` takes gzip (RFC 9110 section 12.5.3): named, or by ``*``, and not
    with a weight of 0."""
    if accept_encoding is None:
        return False
    found: bool | None = None
    for member in accept_encoding.lower().split(b","):
        coding, _, parameters = member.partition(b";")
        coding = coding.strip(b" \t")
        if coding not in (b"gzip", b"x-gzip", b"*"):
            continue
        accepted = _weight(parameters) > 0.0
        if coding != b"*":
            return accepted
        found = accepted
    return bool(found)


def _weight(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip(b" \t") == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def is_textual(content_type: bytes) -> bool:
    """Whether a media type is text that is worth compressing. Streams of events are not."""
    media = content_type.partition(b";")[0].strip(b" \t").lower()
    if media in _STREAMED:
        return False
    return media.startswith(b"text/") or media in _TEXTUAL or media.endswith((b"+json", b"+xml"))


def http_wanted(fields: Fields, settings: Compression) -> bool:
    """Whether a response with these fields (``:status`` first) may and should be compressed."""
    if fields[0][1] in _WITHOUT or fields[0][1][:1] == b"1":
        return False
    textual = False
    for name, value in fields:
        if name == b"content-type":
            textual = is_textual(value)
        elif name in (b"content-encoding", b"content-range"):
            return False
        elif name == b"cache-control" and b"no-transform" in value.lower():
            return False
        elif name == b"content-length" and int(value) < settings.min_size:
            return False
    return textual


def compressed_fields(fields: Fields) -> Fields:
    """The fields of the response once it is compressed."""
    kept: list[Field] = []
    vary = b"accept-encoding"
    for name, value in fields:
        if name in (b"content-length", b"accept-ranges", b"content-md5"):
            continue
        if name == b"vary":
            if b"accept-encoding" not in value.lower() and value.strip() != b"*":
                vary = value + b", accept-encoding"
            else:
                vary = value
            continue
        if name == b"etag" and not value.startswith(b"W/"):
            # The octets differ now (RFC 9110 section 8.8.1).
            value = b"W/" + value
        kept.append((name, value))
    kept += [(b"content-encoding", b"gzip"), (b"vary", vary)]
    return tuple(kept)


class GzipBody:
    """A body, compressed piece by piece; each piece can be read as soon as it arrives."""

    def __init__(self, level: int) -> None:
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)

    def feed(self, data: bytes) -> bytes:
        """Compress a piece."""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self, data: bytes = b"") -> bytes:
        """Compress the last piece."""
        return self._deflate.compress(data) + self._deflate.flush()


class GrpcMessages:
    """The messages of a gRPC body, each compressed by itself if that makes it smaller.

    A message is held until it is whole; one above ``max_message`` passes as it is.
    """

    def __init__(self, settings: Compression) -> None:
        self._settings = settings
        self._rest = b""
        self._pass = 0

    def feed(self, data: bytes) -> bytes:
        """The octets to send now that ``data`` came."""
        out: list[bytes] = []
        if self._pass:
            out.append(data[: self._pass])
            self._pass -= len(out[0])
            data = data[len(out[0]) :]
        data = self._rest + data if self._rest else data
        self._rest = b""
        at = 0
        while at < len(data):
            if len(data) - at < 5:
                break
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            end = at + 5 + size
            if data[at] or not self._settings.min_size <= size <= self._settings.max_message:
                out.append(data[at:end])
                self._pass = max(0, end - len(data))
                at = min(end, len(data))
                continue
            if end > len(data):
                break
            out.append(self._message(data[at:end]))
            at = end
        self._rest = data[at:]
        return b"".join(out)

    def end(self) -> bytes:
        """What is left of a body that ended inside a message."""
        rest, self._rest = self._rest, b""
        return rest

    def _message(self, framed: bytes) -> bytes:
        deflate = zlib.compressobj(self._settings.level, zlib.DEFLATED, _GZIP_WBITS)
        small = deflate.compress(framed[5:]) + deflate.flush()
        if len(small) + 5 >= len(framed):
            return framed
        return b"\x01" + len(small).to_bytes(4, "big") + small
