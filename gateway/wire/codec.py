"""What HTTP/1.1 and HTTP/2 have in common: a connection's codec, its streams, and who owns them.

A :class:`Codec` is one end of one connection. **In**, :meth:`Codec.receive` turns what was read
into calls of the streams' owners, as it is met: a server's owner gets ``request_*`` calls, a
client's ``response_*`` calls, so that one object can own both ends of a proxied exchange. Every
stream ends with exactly one ``*_closed`` call, unless its owner itself reset it. **Out**, all that
is to be sent gathers in ``out``; the first octet of a turn puts the codec's token on the reactor's
flush list, whose reader writes ``out`` to the socket and calls :meth:`Codec.flushed`. What may not
be sent yet waits in the codec; the owner is told with ``*_drained`` when some of it moved on.

In HTTP/1.1 a stream is one request and its response, and a connection has at most one.
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

from gateway.head import Fields, ResponseHead

NEVER: Final = float("inf")

# Why a stream was closed, as its owner is told.
ENDED: Final = 0
"""Both sides have sent all of their message."""
RESET: Final = 1
"""The peer reset the stream; the code comes along."""
REFUSED: Final = 2
"""The peer did not process it (REFUSED_STREAM, GOAWAY, never sent): safe to send again."""
VIOLATION: Final = 3
"""The peer broke a rule on this stream and we reset it."""
LOST: Final = 4
"""The connection is gone."""
STALLED: Final = 5
"""The peer gave no window for ``stall_timeout``."""
OVERFLOW: Final = 6
"""The process holds more octets for slow peers than it may."""
STALE: Final = 7
"""A connection that had served before ended without one octet of the response: it may have died
while it was idle. Safe to send again if the method is idempotent (RFC 9110 section 9.2.2)."""


# What a codec wants of its transport.
READING: Final = 0
"""Input."""
HOLDING: Final = 1
"""No input until what came has moved on."""
WATCHING: Final = 2
"""No input, but to be told if the peer goes away."""


class HeldOctets:
    """What one process holds for slow peers, over all its connections, in octets."""

    __slots__ = ("limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0


class StreamOwner:
    """Who is told what happens on a stream: a server's stream calls ``request_*`` and
    ``response_drained``, a client's ``response_*`` and ``request_drained``.
    """

    __slots__ = ()

    def request_data(self, data: bytes, end: cython.bint) -> None:
        """A piece of the request's body."""

    def request_trailers(self, fields: Fields) -> None:
        """The request ended with trailers."""

    def request_closed(self, why: cython.int, code: cython.longlong) -> None:
        """The stream is over: why, and the error code where there is one."""

    def request_drained(self, octets: cython.Py_ssize_t) -> None:
        """Octets that waited in the client's stream were moved to the out-buffer."""

    def response_informational(self, head: ResponseHead) -> None:
        """A 1xx response."""

    def response_head(self, head: ResponseHead, end: cython.bint) -> None:
        """The response begins."""

    def response_data(self, data: bytes, end: cython.bint) -> None:
        """A piece of the response's body."""

    def response_trailers(self, fields: Fields) -> None:
        """The response ended with trailers."""

    def response_closed(self, why: cython.int, code: cython.longlong) -> None:
        """The stream is over: why, and the error code where there is one."""

    def response_drained(self, octets: cython.Py_ssize_t) -> None:
        """Octets that waited in the server's stream were moved to the out-buffer."""


class Stream:
    """One request and its response on one connection.

    ``owner`` is whoever is told what happens on it. ``local_closed`` and ``remote_closed`` say who
    has sent all of its message; it is ``open`` until both are, or either side resets it. ``detail``
    says what went wrong, where something did.

    ``pending`` holds data that may not be sent yet, None when nothing waits; ``pending_end`` and
    ``pending_trailers`` are what follows it. ``held`` are octets received that the owner has not
    consumed, ``returnable`` those consumed but not yet announced to the sender. ``expected`` are
    the octets of content-length still to come, -1 when unknown. ``no_body`` says that a response
    has none, whatever its content-length.
    """

    __slots__ = (
        "blocked_since",
        "detail",
        "expected",
        "head_done",
        "held",
        "id",
        "local_closed",
        "no_body",
        "open",
        "owner",
        "pending",
        "pending_end",
        "pending_trailers",
        "recv_window",
        "remote_closed",
        "returnable",
        "send_window",
    )

    def __init__(
        self,
        stream_id: cython.longlong,
        owner: StreamOwner | None,
        send_window: cython.longlong,
        recv_window: cython.longlong,
    ) -> None:
        self.begin(stream_id, owner, send_window, recv_window)

    def begin(
        self,
        stream_id: cython.longlong,
        owner: StreamOwner | None,
        send_window: cython.longlong,
        recv_window: cython.longlong,
    ) -> None:
        """What the constructor does. A connection calls it directly, which costs a C call."""
        self.id = stream_id
        # None only before a server's handler has set it, and after the end.
        self.owner: Any = owner
        self.send_window = send_window
        self.recv_window = recv_window
        self.local_closed = False
        self.remote_closed = False
        self.open = True
        self.no_body = False
        self.held = 0
        self.returnable = 0
        self.expected = -1
        self.head_done = False
        self.pending: bytearray | None = None
        self.pending_end = False
        self.pending_trailers: Fields | None = None
        self.blocked_since = 0.0
        self.detail = ""

    def __repr__(self) -> str:
        return (
            f"<Stream {self.id} local_closed={bool(self.local_closed)} "
            f"remote_closed={bool(self.remote_closed)} send={self.send_window} "
            f"recv={self.recv_window} held={self.held}>"
        )


class Codec:
    """One end of a connection, to be derived from.

    ``out_mark`` is the size of ``out`` in octets above which body data waits. ``deadline`` is when
    :meth:`check` has something to do, in seconds of the reactor's clock. ``paused`` says whether
    input is wanted (one of the constants of this module); ``resumable`` that input which waits in
    the codec can go on: whoever flushes calls :meth:`resume` first. ``exhausted`` means that no
    more streams can be opened.
    """

    def begin_codec(
        self,
        client: cython.bint,
        out_mark: cython.Py_ssize_t,
        flush_list: list[Any],
        token: Any,
    ) -> None:
        """Set what every codec has."""
        self.client = client
        self.out = bytearray()
        self.streams: dict[int, Any] = {}
        self.dirty = False
        self.broken = False
        self.paused = READING
        self.resumable = False
        self.exhausted = False
        self.leaving = False
        self.out_mark = out_mark
        self.deadline = NEVER
        self._flush_list = flush_list
        self._token = token

    def touch(self) -> None:
        """There is something to write, or to be looked at, at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self._flush_list.append(self._token)

    def receive(self, data: bytes, now: cython.double) -> None:
        """Take what was read at time ``now`` (seconds, monotonic)."""

    def resume(self, now: cython.double) -> None:
        """Go on with input that waited."""

    def input_ended(self, now: cython.double) -> cython.bint:
        """The peer sends no more. True: it may still read, go on; False: the connection is over."""
        return False

    def flushed(self, now: cython.double) -> None:
        """Some of ``out`` was written to the transport at ``now``."""

    def check(self, now: cython.double) -> None:
        """Act on what is overdue at ``now``, and set ``deadline`` anew."""

    def lost(self, detail: str) -> None:
        """The transport is gone: every stream is lost. Nothing can be sent any more."""

    def go_away(self, now: cython.double) -> None:
        """Begin a graceful end: no new streams, those that are open may finish."""

    def is_finished(self) -> cython.bint:
        """Whether a graceful end is complete: announced, and no stream is left."""
        return False

    def open_stream(
        self,
        owner: StreamOwner,
        fields: Fields,
        extra: Fields,
        end_stream: cython.bint,
        no_body: cython.bint,
    ) -> Stream:
        """Send a request head on a new stream (client).

        ``fields`` begin with the pseudo-fields; what they are encoded to is remembered for the same
        tuple object. ``extra`` are further fields, different for each request. ``no_body`` says
        that the response has none whatever its content-length (HEAD). The caller has checked that
        a stream may be opened.
        """
        raise NotImplementedError

    def send_head(
        self, stream: Stream, fields: Fields, extra: Fields, end_stream: cython.bint
    ) -> None:
        """Send a response head, an informational one included (server)."""

    def send_data(self, stream: Stream, data: bytes, end_stream: cython.bint) -> cython.Py_ssize_t:
        """Send body data as far as may be; the octets that moved at once.

        The rest waits in the codec, and the owner gets ``*_drained(octets)`` as it moves.
        """
        return len(data)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send trailers and with them the end, after whatever data still waits."""

    def reset(self, stream: Stream, code: cython.int) -> None:
        """Reset a stream. Its owner asks for it, so its owner is not told."""

    def consume(self, stream: Stream, octets: cython.longlong) -> None:
        """``octets`` of the stream's data have moved on: its sender may send as many again."""
