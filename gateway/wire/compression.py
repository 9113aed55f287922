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
from gateway.wire.grpc import PREFIX_LENGTH, message_prefix

_GZIP_WBITS: Final = 31
_TRIAL: Final = 65_536
"""Octets of a message after which it shows whether compressing is worth it."""
_TEXTUAL: Final = frozenset(
    (
        b"application/json",
        b"application/javascript",
        b"application/x-javascript",
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
_STREAMED: Final = frozenset(
    (b"text/event-stream", b"application/x-ndjson", b"application/stream+json")
)
# Messages in frames of their own: gRPC, gRPC-Web, and the streams of Connect.
_FRAMED: Final = (b"application/grpc", b"application/connect+")
# These speak of the octets as they were encoded (RFC 9530; RFC 1864).
_DIGESTS: Final = frozenset((b"content-digest", b"repr-digest", b"digest", b"content-md5"))
_WITHOUT: Final = frozenset((b"204", b"205", b"206", b"304"))


def accepts_gzip(accept_encoding: bytes | None) -> bool:
    """Whether ``accept-encoding``, its lines joined, takes gzip (RFC 9110 section 12.5.3): named,
    or by ``*``, with a weight above 0 and not below that of a named ``identity``.

    A weight that is malformed counts as 0.
    """
    if accept_encoding is None:
        return False
    weights: dict[bytes, int] = {}
    for member in accept_encoding.lower().split(b","):
        coding, _, parameters = member.partition(b";")
        coding = coding.strip(b" \t")
        # Section 8.4.1.3: the same coding.
        weights[b"gzip" if coding == b"x-gzip" else coding] = _weight(parameters)
    weight = weights.get(b"gzip", weights.get(b"*", 0))
    return weight > 0 and weight >= weights.get(b"identity", 0)


def _weight(parameters: bytes) -> int:
    """Thousandths (RFC 9110 section 12.4.2)."""
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip(b" \t") == b"q":
            whole, _, part = value.strip(b" \t").partition(b".")
            if whole not in (b"0", b"1") or len(part) > 3 or (part and not part.isdigit()):
                return 0
            return min(int(whole) * 1000 + int(part.ljust(3, b"0")), 1000)
    return 1000


def accepts_grpc_gzip(accept_encoding: bytes | None) -> bool:
    """Whether ``grpc-accept-encoding`` lists gzip. There are neither weights nor ``*`` in it."""
    if accept_encoding is None:
        return False
    return any(coding.strip(b" \t") == b"gzip" for coding in accept_encoding.lower().split(b","))


def is_textual(content_type: bytes) -> bool:
    """Whether a media type is text that is worth compressing. Streams of events, and what has
    frames of its own, are not."""
    media = content_type.partition(b";")[0].strip(b" \t").lower()
    if media in _STREAMED or media.startswith(_FRAMED):
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
        elif name in (b"content-encoding", b"content-range") or name in _DIGESTS:
            return False
        elif name == b"cache-control" and b"no-transform" in value.lower():
            return False
        elif name == b"content-length" and int(value) < settings.min_size:
            return False
    return textual


def grpc_wanted(fields: Fields) -> bool:
    """Whether the messages of a response with these fields (``:status`` first) may be compressed:
    it is gRPC, and its endpoint has not chosen an encoding itself."""
    if fields[0][1] != b"200":
        return False
    framed = False
    for name, value in fields:
        if name == b"content-type":
            framed = value.lower().startswith(b"application/grpc")
        elif name == b"content-encoding" or (
            name == b"grpc-encoding" and value.lower() != b"identity"
        ):
            return False
    return framed


def compressed_fields(fields: Fields) -> Fields:
    """The fields of the response once it is compressed."""
    kept: list[Field] = []
    vary: list[bytes] = []
    for name, value in fields:
        if name in (b"content-length", b"accept-ranges"):
            continue
        if name == b"vary":
            vary.append(value)
            continue
        if name == b"etag" and not value.startswith(b"W/"):
            # The octets differ now (RFC 9110 section 8.8.1).
            value = b"W/" + value
        kept.append((name, value))
    members = {member.strip(b" \t") for value in vary for member in value.lower().split(b",")}
    if not members & {b"accept-encoding", b"*"}:
        vary.append(b"accept-encoding")
    kept += [(b"content-encoding", b"gzip"), (b"vary", b", ".join(vary))]
    return tuple(kept)


class GzipBody:
    """A body, compressed piece by piece; each piece can be read as soon as it arrives."""

    def __init__(self, level: int) -> None:
        self._deflate = _compressor(level)

    def feed(self, data: bytes) -> bytes:
        """Compress a piece."""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self, data: bytes = b"") -> bytes:
        """Compress the last piece."""
        return self._deflate.compress(data) + self._deflate.flush()


class GrpcMessages:
    """The messages of a gRPC body, each compressed by itself if that makes it smaller.

    A message is held until it is whole, since its length comes first, and compressed while it
    comes, so that no turn has to compress all of it: at most ``max_message`` octets, and what they
    were compressed to, which is no more. One that is smaller or larger than the settings say, or
    compressed already, passes as it comes; so does one whose first 64 KiB did not get smaller by an
    eighth, as numbers and images don't.
    """

    def __init__(self, settings: Compression) -> None:
        self._settings = settings
        # Octets that pass as they are.
        self._pass = 0
        # A prefix that is not whole, or a message with its prefix.
        self._held = bytearray()
        # Of the message that is held: its end in what is held, and what it was compressed to.
        self._end = 0
        self._small = bytearray()
        self._deflate: zlib._Compress | None = None

    def feed(self, data: bytes) -> bytes:
        """The octets to send now that ``data`` came."""
        if self._pass >= len(data):
            self._pass -= len(data)
            return data
        out = bytearray()
        at = 0
        while at < len(data):
            if self._pass:
                piece = data[at : at + self._pass]
                self._pass -= len(piece)
                out += piece
            elif self._end:
                until = self._end
                if len(self._held) < PREFIX_LENGTH + _TRIAL:
                    until = min(until, PREFIX_LENGTH + _TRIAL)
                piece = data[at : at + until - len(self._held)]
                self._message(piece, out)
            else:
                piece = data[at : at + PREFIX_LENGTH - len(self._held)]
                self._prefix(piece, out)
            at += len(piece)
        return bytes(out)

    def end(self) -> bytes:
        """What is left of a body that ended inside a message."""
        rest = bytes(self._held)
        self._release()
        return rest

    def _prefix(self, piece: bytes, out: bytearray) -> None:
        held = self._held
        held += piece
        if len(held) < PREFIX_LENGTH:
            return
        size = int.from_bytes(held[1:], "big")
        if held[0] or not size or not self._settings.min_size <= size <= self._settings.max_message:
            out += held
            self._pass = size
            self._release()
        else:
            self._end = PREFIX_LENGTH + size
            self._deflate = _compressor(self._settings.level)

    def _message(self, piece: bytes, out: bytearray) -> None:
        held = self._held
        small = self._small
        deflate = self._deflate
        assert deflate is not None
        held += piece
        small += deflate.compress(piece)
        size = self._end - PREFIX_LENGTH
        if len(held) == self._end:
            small += deflate.flush()
            if len(small) < size:
                out += message_prefix(True, len(small))
                out += small
            else:
                out += held
            self._release()
            return
        enough = size
        if len(held) == PREFIX_LENGTH + _TRIAL:
            small += deflate.flush(zlib.Z_SYNC_FLUSH)
            enough = _TRIAL - _TRIAL // 8
        if len(small) >= enough:
            out += held
            self._pass = self._end - len(held)
            self._release()

    def _release(self) -> None:
        self._held = bytearray()
        self._small = bytearray()
        self._end = 0
        # It is a quarter of a mebibyte.
        self._deflate = None


def _compressor(level: int) -> zlib._Compress:
    return zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
