"""gRPC-Web clients before gRPC endpoints: one translation for each stream.

The request becomes gRPC with its head; a text body is decoded as it comes. The response's head
gets the
client's content type, each piece of it passes in the turn in which it came, and the trailers become
the last frame of the body. A failure of our own is told as one of gRPC, since to the exchange this
is a gRPC request. A response that is not gRPC passes as it is.
"""

from __future__ import annotations

from gateway.errors import Failure, Kind, Side
from gateway.head import Field, Fields, RequestHead
from gateway.proxy.translation import Translation
from gateway.wire.codec import Codec, Stream
from gateway.wire.grpc_web import (
    ContentType,
    TextDecoder,
    content_type,
    encode_text,
    is_grpc,
    trailer_frame,
)

_TE_TRAILERS: Field = (b"te", b"trailers")
_REPLACED = frozenset((b"content-type", b"te", b"accept"))


def mode_of(head: RequestHead) -> ContentType | None:
    """The kind of gRPC-Web that a request is, None if it is none."""
    if head.method != b"POST":
        return None
    value = head.get(b"content-type")
    return None if value is None else content_type(value)


def as_grpc(head: RequestHead, mode: ContentType) -> RequestHead:
    """The request as gRPC. Decoding a text body changes its length, so that is left out."""
    drop = _REPLACED | {b"content-length"} if mode.text else _REPLACED
    fields = [field for field in head.fields if field[0] not in drop]
    fields += [(b"content-type", mode.grpc()), _TE_TRAILERS]
    return RequestHead(
        head.method,
        head.scheme,
        head.authority,
        head.path,
        tuple(fields),
        content_length=-1 if mode.text else head.content_length,
        is_grpc=True,
        grpc_timeout_s=head.grpc_timeout_s,
    )


class GrpcWeb(Translation):
    """See the module. ``mode`` is the client's content type."""

    def __init__(self, codec: Codec, stream: Stream, *, mode: ContentType) -> None:
        super().__init__(codec, stream)
        self._mode = mode
        self._decoder = TextDecoder() if mode.text else None
        self._is_grpc = False

    def request_data(self, data: bytes, end: bool) -> None:
        """Decode a piece of a text body."""
        if self._decoder is None:
            super().request_data(data, end)
            return
        try:
            made = self._decoder.feed(data)
            if end:
                self._decoder.end()
        except ValueError as error:
            detail = f"the body of application/grpc-web-text: {error}"
            self.owner.fail(Failure(Kind.MALFORMED_REQUEST, Side.DOWNSTREAM, detail))
            return
        self.hand_on(len(data), made, end)

    def send_head(self, stream: Stream, fields: Fields, extra: Fields, end_stream: bool) -> None:
        """Send the head with the client's content type.

        Without a body (Trailers-Only) the status stays in the head, where clients look for it.
        """
        own = next((value for name, value in fields if name == b"content-type"), b"")
        if fields[0][1][:1] == b"1" or not is_grpc(own):
            self.codec.send_head(stream, fields, extra, end_stream)
            return
        self._is_grpc = True
        web = (b"content-type", self._mode.web(own))
        drop = (b"content-length", b"trailer")
        changed = tuple(
            web if field[0] == b"content-type" else field
            for field in fields
            if field[0] not in drop
        )
        self.codec.send_head(stream, changed, extra, end_stream)

    def send_data(self, stream: Stream, data: bytes, end_stream: bool) -> int:
        """Send a piece of the body, encoded for a text client."""
        if self._is_grpc and self._mode.text:
            return self.pass_on(stream, len(data), encode_text(data), end_stream)
        return super().send_data(stream, data, end_stream)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send the trailers as the last frame."""
        if not self._is_grpc:
            super().send_trailers(stream, fields)
            return
        frame = trailer_frame(fields)
        self.pass_on(stream, 0, encode_text(frame) if self._mode.text else frame, True)
