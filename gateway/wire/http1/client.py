"""The client of an HTTP/1.1 connection: requests out, responses in, one at a time.

No request is sent before the last response has ended: a pipelined one would be lost, or answered
twice, when the connection ends. What happens to a request whose connection ends without a response
depends on what is known (RFC 9112 section 9.3.1, RFC 9110 section 9.2.2): not one octet was sent,
then the endpoint can't have seen it (``REFUSED``); the connection had served before and not one
octet came back, then it probably died while it was idle (``STALE``); anything else is ``LOST``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http1, Http2
from gateway.head import Fields, ResponseHead
from gateway.wire.codec import (
    ENDED,
    LOST,
    REFUSED,
    STALE,
    VIOLATION,
    HeldOctets,
    Stream,
    StreamOwner,
)
from gateway.wire.fields import MalformedHead
from gateway.wire.http1 import body
from gateway.wire.http1.connection import REMEMBERED_HEAD, Http1Codec
from gateway.wire.http1.heads import Http1Response, read_response
from gateway.wire.http1.writing import CHUNKED, EMPTY, UPGRADE, append_request_head, has_length

MAX_INFORMATIONAL: Final = 32
"""Interim (1xx) responses to one request."""

_ENDED: int = cython.declare(cython.int, ENDED)
_LOST: int = cython.declare(cython.int, LOST)
_REFUSED: int = cython.declare(cython.int, REFUSED)
_STALE: int = cython.declare(cython.int, STALE)
_VIOLATION: int = cython.declare(cython.int, VIOLATION)
_LENGTH: int = cython.declare(cython.int, body.LENGTH)
_CHUNKED_BODY: int = cython.declare(cython.int, body.CHUNKED)
_UNTIL_CLOSE: int = cython.declare(cython.int, body.UNTIL_CLOSE)
_CHUNKED: int = cython.declare(cython.int, CHUNKED)
_EMPTY: int = cython.declare(cython.int, EMPTY)
_UPGRADE: int = cython.declare(cython.int, UPGRADE)

# Methods whose request has a length even if there is no body (RFC 9110 section 8.6).
_WITH_BODY: frozenset[bytes] = cython.declare(frozenset, frozenset((b"POST", b"PUT", b"PATCH")))


class Client(Http1Codec):
    """``handler`` is told with ``on_goaway`` when the endpoint closes after this response."""

    def __init__(
        self,
        http1: Http1,
        http2: Http2,
        handler: Any,
        budget: HeldOctets,
        flush_list: list[Any],
        token: Any,
        now: float,
    ) -> None:
        self.begin_http1(True, http1, http2, handler, budget, flush_list, token, now)
        self._upgrading = False
        self._tunnel = False
        self._head_done = False
        self._sent_any = False
        self._heard_any = False
        self._surplus = False
        self._informational = 0

    # -- requests ----------------------------------------------------------------------------

    def open_stream(
        self,
        owner: StreamOwner,
        fields: Fields,
        extra: Fields,
        end_stream: cython.bint,
        no_body: cython.bint,
    ) -> Stream:
        """Send a request head; see :meth:`gateway.wire.codec.Codec.open_stream`.

        ``:protocol`` among the fields asks for an upgrade. Raises ValueError for a field that can't
        be written.
        """
        flags: cython.int = 0
        self._upgrading = fields[1][0] == b":protocol"
        if self._upgrading:
            flags = _UPGRADE
        elif not has_length(fields):
            if not end_stream:
                flags = _CHUNKED
            elif fields[0][1] in _WITH_BODY:
                flags = _EMPTY
        append_request_head(self.out, fields, extra, flags)
        stream: Stream = Stream.__new__(Stream)
        stream.begin(self._served + 1, owner, 0, 0)
        stream.no_body = no_body
        stream.local_closed = end_stream
        self._chunked_out = flags == _CHUNKED
        self._keep = True
        self._head_done = False
        self._sent_any = False
        self._heard_any = False
        self._informational = 0
        self._stream = stream
        self.streams[1] = stream
        if self._upgrading:
            # Nothing may follow before the endpoint has agreed: it waits.
            stream.pending = bytearray()
        self.touch()
        return stream

    def _append_end(self, target: bytearray, trailers: Fields) -> None:
        if not self._upgrading and not self._tunnel:
            Http1Codec._append_end(self, target, trailers)

    def _sent_end(self) -> None:
        stream: Stream = self._stream
        stream.local_closed = True
        if stream.remote_closed:
            self._remove(stream, _ENDED, 0)
        elif self._tunnel:
            # The client has left the tunnel: there is nobody to read what else would come.
            self._in_body = False
            stream.remote_closed = True
            owner: StreamOwner = stream.owner
            owner.response_data(b"", True)
            self._remove(stream, _ENDED, 0)
            self._break(0, "")

    def flushed(self, now: cython.double) -> None:
        """Some of ``out`` was written to the transport at ``now``."""
        self._sent_any = True
        if not self._upgrading:
            Http1Codec.flushed(self, now)

    # -- responses ---------------------------------------------------------------------------

    def _read_head(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        n: cython.Py_ssize_t = len(data)
        end: cython.Py_ssize_t
        response: Http1Response
        stream: Stream | None = self._stream
        if stream is None or self._head_done:
            # An answer to nothing, or one before the request was sent: who knows to what.
            self._violate("octets outside of a response")
            return n
        self._heard_any = True
        if self._last_octets is not None and data.startswith(self._last_octets, i):
            i += len(self._last_octets)
            self._scanned = 0
            self._surplus = i < n
            self._response(stream, self._last_head)
            return i
        end = self._head_end(data, i)
        if end < 0:
            if n - i > self._max_head:
                self._violate("response head above http1.max_head_size")
                return n
            return i
        if end - i > self._max_head:
            self._violate("response head above http1.max_head_size")
            return n
        octets = data[i:end]
        try:
            response = read_response(octets, self._limits.max_fields)
        except MalformedHead as error:
            self._violate(f"malformed response: {error.reason}")
            return n
        if end - i <= REMEMBERED_HEAD:
            self._last_head = response
            self._last_octets = octets
        self._surplus = end < n
        self._response(stream, response)
        return end

    def _response(self, stream: Stream, response: Http1Response) -> None:
        head: ResponseHead = response.head
        status: cython.int = head.status
        end: cython.bint = False
        if status < 200:
            if status == 101:
                self._switched(stream, response)
                return
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                self._violate("too many interim responses")
                return
            stream.owner.response_informational(head)
            return
        self._head_done = True
        self._keep = response.keep_alive
        if stream.no_body or status == 204 or status == 304:
            end = True
        elif response.chunked:
            self._reader.begin(_CHUNKED_BODY, 0)
        elif head.content_length > 0:
            self._reader.begin(_LENGTH, head.content_length)
        elif head.content_length == 0:
            end = True
        else:
            self._reader.begin(_UNTIL_CLOSE, 0)
            self._keep = False
        if self._upgrading:
            # The endpoint wants no tunnel: the request has nothing more to send.
            self._upgrading = False
            stream.local_closed = True
            if stream.pending is not None:
                self._budget.total -= len(stream.pending)
                stream.pending = None
            self._owed = 0
        self._in_body = not end
        if end:
            stream.remote_closed = True
        if not self._keep:
            self._handler.on_goaway(0, "")
        elif end and self._surplus:
            self._followed()
        # Held here: what it does may end the stream, and with it the owner.
        owner: StreamOwner = stream.owner
        owner.response_head(head, end)
        if end and stream.open:
            self._received_end()

    def _switched(self, stream: Stream, response: Http1Response) -> None:
        """101: from here on both sides send what they want."""
        if not self._upgrading or response.upgrade != b"websocket":
            self._violate("status 101 to a request that did not ask for it")
            return
        self._upgrading = False
        self._tunnel = True
        self._head_done = True
        self._keep = False
        self._in_body = True
        self._reader.begin(_UNTIL_CLOSE, 0)
        self._handler.on_goaway(0, "")
        owner: StreamOwner = stream.owner
        owner.response_head(response.head, False)
        if stream.open and stream.pending is not None:
            self._pump()

    def _followed(self) -> None:
        """Octets behind the end of a response must not be taken for the answer to the next request:
        the connection takes no other."""
        if self._keep:
            self._keep = False
            self._handler.on_goaway(0, "octets after the end of a response")

    def _received_end(self) -> None:
        stream: Stream = self._stream
        if stream.local_closed or self._tunnel:
            self._remove(stream, _ENDED, 0)

    def _violate(self, detail: str) -> None:
        stream: Stream | None = self._stream
        self._handler.count("protocol_error")
        if stream is not None:
            stream.detail = detail
            self._remove(stream, _VIOLATION, 0)
        self._break(0, detail)

    def _bad_body(self, detail: str) -> None:
        self._violate(f"malformed response: {detail}")

    def input_ended(self, now: cython.double) -> cython.bint:
        """The end of input is the end of a body that has no other."""
        self._now = now
        self._take_rest()
        stream: Stream | None = self._stream
        if stream is None or not self._in_body or not self._reader.at_eof():
            return False
        self._in_body = False
        stream.remote_closed = True
        owner: StreamOwner = stream.owner
        owner.response_data(b"", True)
        if stream.open:
            self._remove(stream, _ENDED, 0)
        return False

    # -- the end -----------------------------------------------------------------------------

    def reset(self, stream: Stream, code: cython.int) -> None:
        """End the stream and with it the connection: closing is how HTTP/1.1 cancels."""
        if not stream.open:
            return
        self._forget(stream)
        self.broken = True
        self._handler.on_cut("the request was cancelled")

    def lost(self, detail: str) -> None:
        """The transport is gone; the stream's owner learns what may be done about it."""
        self.broken = True
        stream: Stream | None = self._stream
        if stream is None:
            return
        stream.detail = detail
        if not self._sent_any:
            self._remove(stream, _REFUSED, 0)
        elif self._served and not self._heard_any:
            self._remove(stream, _STALE, 0)
        else:
            self._remove(stream, _LOST, 0)

    def go_away(self, now: cython.double) -> None:
        """Nothing has to be said; the connection is closed when it is free."""
        self.leaving = True
