"""The server of an HTTP/1.1 connection: requests in, responses out, one after the other.

Requests that come before the last one was answered are served in order (RFC 9112 section 9.3.2). An
HTTP/1.0 client gets no interim responses, no chunks and no connection that goes on unless it asked
for one. The connection ends after a request that breaks a rule: where the next one begins would be
a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http1, Http2
from gateway.head import Fields, RequestHead
from gateway.wire.codec import (
    ENDED,
    HOLDING,
    NEVER,
    READING,
    WATCHING,
    HeldOctets,
    Stream,
    StreamOwner,
)
from gateway.wire.fields import MalformedHead
from gateway.wire.http1 import body
from gateway.wire.http1.connection import REMEMBERED_HEAD, Http1Codec
from gateway.wire.http1.heads import Http1Request, TooManyFields, UnsupportedVersion, read_request
from gateway.wire.http1.writing import (
    CHUNKED,
    CLOSE,
    EMPTY,
    KEEP_ALIVE,
    NO_LENGTH,
    UPGRADE,
    append_response_head,
    has_length,
)

_ENDED: int = cython.declare(cython.int, ENDED)
_READING: int = cython.declare(cython.int, READING)
_HOLDING: int = cython.declare(cython.int, HOLDING)
_WATCHING: int = cython.declare(cython.int, WATCHING)
_LENGTH: int = cython.declare(cython.int, body.LENGTH)
_CHUNKED_BODY: int = cython.declare(cython.int, body.CHUNKED)
_UNTIL_CLOSE: int = cython.declare(cython.int, body.UNTIL_CLOSE)
_CHUNKED: int = cython.declare(cython.int, CHUNKED)
_CLOSE: int = cython.declare(cython.int, CLOSE)
_EMPTY: int = cython.declare(cython.int, EMPTY)
_KEEP_ALIVE: int = cython.declare(cython.int, KEEP_ALIVE)
_UPGRADE: int = cython.declare(cython.int, UPGRADE)

_NO_LENGTH: int = cython.declare(cython.int, NO_LENGTH)
_CR: int = cython.declare(cython.int, 13)
_LF: int = cython.declare(cython.int, 10)
_ONE: int = cython.declare(cython.int, 0x31)

_COUNTERS = {"headers_too_large": "header_list_too_large", "client_timeout": "header_timeout"}

# What is answered to what was no request: as to a client that gets an answer and no more.
_NO_REQUEST: Http1Request = cython.declare(
    Http1Request,
    Http1Request(
        RequestHead(b"GET", b"http", b"", b"/", ()),
        minor=1,
        keep_alive=False,
        chunked=False,
        te_trailers=False,
        expects_continue=False,
    ),
)


class Server(Http1Codec):
    """``scheme`` is what the connection is, ``http`` or ``https``."""

    def __init__(
        self,
        http1: Http1,
        http2: Http2,
        handler: Any,
        budget: HeldOctets,
        flush_list: list[Any],
        token: Any,
        now: float,
        scheme: bytes,
    ) -> None:
        self.begin_http1(False, http1, http2, handler, budget, flush_list, token, now)
        self._scheme = scheme
        self._request = _NO_REQUEST
        self._head_sent = False
        self._continued = False
        self._tunnel = False
        self._head_begun = False
        self.deadline = now + http1.header_timeout_s

    # -- requests ----------------------------------------------------------------------------

    def _read_head(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        n: cython.Py_ssize_t = len(data)
        end: cython.Py_ssize_t
        request: Http1Request
        if self._stream is not None:
            # Pipelined: its turn comes when the response before it is written.
            self._stop_input(_WATCHING)
            return i
        if self.leaving:
            # The last response has said that no more is read.
            return n
        if self._last_octets is not None and data.startswith(self._last_octets, i):
            i += len(self._last_octets)
            self._scanned = 0
            self._begin(self._last_head)
            return i
        if data[i] == _CR and n - i > 2 and data[i + 1] == _LF and data[i + 2] != _CR:
            # An empty line before a request is let pass (RFC 9112 section 2.2): one, not many.
            return i + 2
        end = self._head_end(data, i)
        if end < 0:
            if n - i > self._max_head:
                self._refuse("headers_too_large", "the head is above http1.max_head_size")
                return n
            if not self._head_begun:
                self._head_begun = True
                self.deadline = self._now + self._limits.header_timeout_s
            return i
        if end - i > self._max_head:
            self._refuse("headers_too_large", "the head is above http1.max_head_size")
            return n
        octets = data[i:end]
        try:
            request = read_request(octets, self._scheme, self._limits.max_fields)
        except TooManyFields as error:
            self._refuse("headers_too_large", error.reason)
            return n
        except UnsupportedVersion as error:
            self._refuse("unsupported_version", error.reason)
            return n
        except MalformedHead as error:
            self._refuse("malformed_request", error.reason)
            return n
        if end - i <= REMEMBERED_HEAD:
            self._last_head = request
            self._last_octets = octets
        self._begin(request)
        return end

    def _begin(self, request: Http1Request) -> None:
        head: RequestHead = request.head
        self._request = request
        self._head_begun = False
        self._head_sent = False
        self._continued = False
        self._skip_body = False
        self._chunked_out = False
        self._keep = request.keep_alive
        self.deadline = NEVER
        stream: Stream = Stream.__new__(Stream)
        stream.begin(self._served + 1, None, 0, 0)
        if request.chunked:
            self._reader.begin(_CHUNKED_BODY, 0)
            self._in_body = True
        elif head.content_length > 0:
            self._reader.begin(_LENGTH, head.content_length)
            self._in_body = True
        elif head.protocol is None:
            stream.remote_closed = True
        # Else what follows is the tunnel's, if the answer is 101, or the next request.
        self._stream = stream
        self.streams[1] = stream
        self._handler.on_request(stream, head)

    def _refuse(self, kind: str, detail: str) -> None:
        """Answer what is no request, and read nothing more."""
        self._handler.count(_COUNTERS.get(kind, "protocol_error"))
        self._request = _NO_REQUEST
        self._head_begun = False
        self._head_sent = False
        self._skip_body = False
        self._chunked_out = False
        self._keep = False
        self._in_body = False
        self.deadline = NEVER
        stream: Stream = Stream.__new__(Stream)
        stream.begin(self._served + 1, None, 0, 0)
        stream.remote_closed = True
        self._stream = stream
        self.streams[1] = stream
        self._handler.on_bad_request(stream, kind, detail)

    def _bad_body(self, detail: str) -> None:
        self._in_body = False
        self._keep = False
        self.leaving = True
        self._handler.count("protocol_error")
        if self._stream is not None:
            self._handler.on_bad_body(self._stream, detail)

    def input_ended(self, now: cython.double) -> cython.bint:
        """Outside of a tunnel a client that closes its side is gone, as for most proxies."""
        stream: Stream | None = self._stream
        if not self._tunnel or stream is None:
            return False
        self._now = now
        self._take_rest()
        self._in_body = False
        self.paused = _HOLDING
        if not stream.remote_closed:
            stream.remote_closed = True
            owner: StreamOwner = stream.owner
            owner.request_data(b"", True)
            if stream.open:
                self._received_end()
        return not self.broken

    # -- responses ---------------------------------------------------------------------------

    def send_head(
        self, stream: Stream, fields: Fields, extra: Fields, end_stream: cython.bint
    ) -> None:
        """Send a response head, an informational one included.

        101 turns the connection into a tunnel, if the request asked for one.
        """
        if not stream.open:
            return
        request: Http1Request = self._request
        status: bytes = fields[0][1]
        flags: cython.int = 0
        if status[0] == _ONE:
            if status == b"101":
                self._become_tunnel(stream)
                append_response_head(self.out, fields, extra, _UPGRADE)
                self.touch()
            elif request.minor:
                self._continued = True
                append_response_head(self.out, fields, extra, 0)
                self.touch()
            return
        self._head_sent = True
        if request.head.protocol is not None:
            # No tunnel: what the client sent after its request is the next one.
            stream.remote_closed = True
        if request.head.method == b"HEAD" or status == b"304":
            self._skip_body = True
        elif status == b"204":
            self._skip_body = True
            flags = _NO_LENGTH
        elif has_length(fields):
            pass
        elif end_stream:
            flags = _EMPTY
        elif request.minor:
            flags = _CHUNKED
            self._chunked_out = True
        else:
            self._keep = False
        if self.leaving:
            self._keep = False
        elif not stream.remote_closed:
            # What is left of the request is not worth reading after an error; and whether it comes
            # at all is unknown if the client waited for 100 (RFC 9110 section 10.1.1).
            if status >= b"400" or (request.expects_continue and not self._continued):
                self._keep = False
        if not self._keep:
            flags |= _CLOSE
        elif not request.minor:
            flags |= _KEEP_ALIVE
        append_response_head(self.out, fields, extra, flags)
        self.touch()
        if end_stream:
            self._sent_end()

    def _become_tunnel(self, stream: Stream) -> None:
        self._head_sent = True
        self._tunnel = True
        self._keep = False
        self._in_body = True
        self._reader.begin(_UNTIL_CLOSE, 0)
        if self.paused != _READING or self._rest:
            self._go_on()

    def _sent_end(self) -> None:
        stream: Stream = self._stream
        stream.local_closed = True
        if not stream.remote_closed and not self._keep:
            # The head said that the connection ends here, or the other end left the tunnel.
            self._in_body = False
            stream.remote_closed = True
        if stream.remote_closed:
            self._remove(stream, _ENDED, 0)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send the end, with trailers if the client said that it takes them (``te: trailers``)."""
        Http1Codec.send_trailers(self, stream, fields if self._request.te_trailers else ())

    def reset(self, stream: Stream, code: cython.int) -> None:
        """End the stream and, since nothing tells one message from the next, the connection.

        A response that is not whole is never made to look so: a chunked one lacks its last chunk,
        one with a length is short, and one that ends with the connection ends with a reset.
        """
        if not stream.open:
            return
        whole: cython.bint = stream.local_closed
        cut: cython.bint = self._head_sent and not whole and not self._chunked_out
        self._forget(stream)
        self._break(code, "")
        if cut:
            self._handler.on_cut("the response could not be finished")

    # -- time --------------------------------------------------------------------------------

    def flushed(self, now: cython.double) -> None:
        """Some of ``out`` was written to the transport at ``now``."""
        Http1Codec.flushed(self, now)
        if self._stream is None and not self._head_begun and not self.leaving:
            timeout = self._limits.keepalive_timeout_s
            self.deadline = NEVER if timeout is None else now + timeout

    def go_away(self, now: cython.double) -> None:
        """Close when the response under way is written; it says so if its head was not sent yet."""
        self.leaving = True
        if self._stream is None:
            self._handler.on_idle()

    def check(self, now: cython.double) -> None:
        """End a connection that waits too long for a request or the rest of one."""
        if now < self.deadline or self.broken:
            return
        self._now = now
        self.deadline = NEVER
        if self._stream is not None:
            return
        if self._head_begun:
            self._rest = b""
            self._refuse("client_timeout", "no whole head within http1.header_timeout")
        else:
            self.leaving = True
            self._handler.on_idle()
