"""Compressing responses where a route says so: one translation for each stream that it concerns.

Off unless configured. A response that mixes a secret with what an attacker can choose tells of the
secret by its compressed length (the BREACH attack); whoever switches it on should know that such
responses don't pass here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.config import Compression
from gateway.head import Fields, RequestHead
from gateway.proxy.translation import Translation
from gateway.wire.codec import Codec, Stream
from gateway.wire.compression import (
    GrpcMessages,
    GzipBody,
    accepts_grpc_gzip,
    accepts_gzip,
    compressed_fields,
    grpc_wanted,
    http_wanted,
)

_GZIP = (b"grpc-encoding", b"gzip")


def wanted(
    head: RequestHead, settings: Compression
) -> Callable[[Codec, Stream], Translation] | None:
    """What makes the translation for a request, None if its response stays as it is."""
    if head.is_grpc:
        if settings.grpc and accepts_grpc_gzip(_joined(head, b"grpc-accept-encoding")):
            return partial(GrpcCompression, settings=settings)
        return None
    if settings.http and head.method != b"HEAD" and head.protocol is None:
        if accepts_gzip(_joined(head, b"accept-encoding")):
            return partial(HttpCompression, settings=settings)
    return None


def _joined(head: RequestHead, name: bytes) -> bytes | None:
    """The value of a list that may be cut into several fields (RFC 9110 section 5.3)."""
    values = [value for field, value in head.fields if field == name]
    return b",".join(values) if values else None


class HttpCompression(Translation):
    """gzip of a textual response."""

    def __init__(self, codec: Codec, stream: Stream, *, settings: Compression) -> None:
        super().__init__(codec, stream)
        self._settings = settings
        self._body: GzipBody | None = None

    def send_head(self, stream: Stream, fields: Fields, extra: Fields, end_stream: bool) -> None:
        """Send the head; whether the body is compressed shows here."""
        if not end_stream and http_wanted(fields, self._settings):
            self._body = GzipBody(self._settings.level)
            fields = compressed_fields(fields)
        self.codec.send_head(stream, fields, extra, end_stream)

    def send_data(self, stream: Stream, data: bytes, end_stream: bool) -> int:
        """Send a piece, compressed."""
        if self._body is None:
            return super().send_data(stream, data, end_stream)
        if end_stream:
            made = self._body.end(data)
        else:
            made = self._body.feed(data) if data else b""
        return self.pass_on(stream, len(data), made, end_stream)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """End the compressed body, then send trailers."""
        if self._body is not None:
            self.pass_on(stream, 0, self._body.end(), False)
        super().send_trailers(stream, fields)


class GrpcCompression(Translation):
    """gzip of each message of a gRPC response."""

    def __init__(self, codec: Codec, stream: Stream, *, settings: Compression) -> None:
        super().__init__(codec, stream)
        self._settings = settings
        self._messages: GrpcMessages | None = None

    def send_head(self, stream: Stream, fields: Fields, extra: Fields, end_stream: bool) -> None:
        """Send the head; messages that the endpoint compresses itself stay as they are."""
        if not end_stream and grpc_wanted(fields):
            self._messages = GrpcMessages(self._settings)
            drop = (b"grpc-encoding", b"content-length")
            fields = (*(field for field in fields if field[0] not in drop), _GZIP)
        self.codec.send_head(stream, fields, extra, end_stream)

    def send_data(self, stream: Stream, data: bytes, end_stream: bool) -> int:
        """Send the messages that are whole, compressed."""
        if self._messages is None:
            return super().send_data(stream, data, end_stream)
        made = self._messages.feed(data)
        if end_stream:
            made += self._messages.end()
        return self.pass_on(stream, len(data), made, end_stream)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send what is left, then trailers."""
        if self._messages is not None:
            rest = self._messages.end()
            if rest:
                self.pass_on(stream, 0, rest, False)
        super().send_trailers(stream, fields)
