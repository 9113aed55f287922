"""One stream of a connection: its halves, its windows, and what of its DATA still waits."""

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
from gateway.wire.frames import ErrorCode

# Why a stream was closed, as its owner is told.
ENDED: Final = 0
"""Both sides sent END_STREAM."""
RESET: Final = 1
"""The peer sent RST_STREAM; the code comes along."""
REFUSED: Final = 2
"""The peer did not process it (REFUSED_STREAM or GOAWAY): safe to send again."""
VIOLATION: Final = 3
"""The peer broke a rule on this stream and we reset it."""
LOST: Final = 4
"""The connection is gone."""
STALLED: Final = 5
"""The peer gave no window for ``stall_timeout``."""
OVERFLOW: Final = 6
"""The process holds more octets for slow peers than it may."""


class ConnectionFault(Exception):
    """The peer broke a rule for which RFC 9113 closes the connection.

    Raised while a frame is handled and caught by :meth:`Connection.receive`.
    """

    def __init__(self, code: ErrorCode, detail: str, counter: str = "protocol_error") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.counter = counter


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
    """One stream of a connection. ``owner`` is whoever is told what happens on it.

    ``pending`` holds DATA that may not be sent yet, None when nothing waits; ``pending_end`` and
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
