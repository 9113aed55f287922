"""One connection to an endpoint: how many streams it takes, and when it must retire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
    from gateway.upstream.pool import Pool
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.head import Fields
from gateway.net.transport import Transport
from gateway.telemetry import Counter
from gateway.wire.codec import NEVER, Codec, Stream
from gateway.wire.frames import ErrorCode

_UPSTREAM_STREAMS_OPEN: int = cython.declare(cython.int, int(Counter.UPSTREAM_STREAMS_OPEN))


class UpstreamConnection:
    """The handler of a client's codec, one of a pool's: of HTTP/1.1 if ``http1``, else of HTTP/2.

    ``retire_at`` is when it takes no more streams because of its age, ``kill_at`` when those left
    are cut off, both seconds of the reactor's clock. It is ``settled`` when the endpoint's
    SETTINGS came, for which there are ``settle_timeout_s`` seconds; HTTP/1.1 has none to wait for.
    """

    def __init__(
        self,
        pool: Pool,
        now: float,
        retire_at: float,
        grace_s: float,
        settle_timeout_s: float,
        most_streams: int,
        http1: bool,
    ) -> None:
        self.pool = pool
        self.http1 = http1
        self.idle_since = now
        self.retiring = False
        self.retire_at = retire_at
        self.kill_at = NEVER
        # No stream is opened before the peer has said how many it takes.
        self.limit = 0
        self.settled = False
        self.used = False
        self.answered = False
        self._settle_until = now + settle_timeout_s
        self._grace = grace_s
        self._most = most_streams
        self._counters = pool.reactor.counters

    def start(self, codec: Codec, transport: Transport) -> None:
        """Bind to the codec and the transport that were made for it."""
        self.codec = codec
        self.transport = transport
        if self.http1:
            self.settled = True
            self.limit = 1

    @property
    def streams(self) -> int:
        """Streams open on it."""
        return len(self.codec.streams)

    def room(self) -> cython.Py_ssize_t:
        """How many more streams it takes now."""
        if self.retiring:
            return 0
        return self.limit - len(self.codec.streams)

    def open_stream(
        self,
        owner: Any,
        fields: Fields,
        extra: Fields,
        end_stream: cython.bint,
        no_body: cython.bint,
    ) -> Stream:
        """Send a request head; see :meth:`gateway.wire.codec.Codec.open_stream`."""
        stream = self.codec.open_stream(owner, fields, extra, end_stream, no_body)
        self.used = True
        self._counters[_UPSTREAM_STREAMS_OPEN] += 1
        if self.codec.exhausted:
            self.retire()
        return stream

    def unused(self) -> None:
        """The request that was given this connection does not need it."""
        if not self.codec.streams and not self.retiring:
            self.pool.became_idle(self)

    def stream_closed(self) -> None:
        """The owner of a stream is done with it: there is room for one that waits."""
        self._counters[_UPSTREAM_STREAMS_OPEN] -= 1
        self.pool.released(self)

    def retire(self) -> None:
        """Take no more streams; close when those that are open have ended."""
        if self.retiring:
            return
        self.retiring = True
        self.pool.retired(self)
        if not self.codec.streams:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """GOAWAY and close. Not earlier: there are servers that end every stream at a GOAWAY."""
        self.codec.go_away(self.pool.reactor.now)
        self.transport.close_gracefully()

    # What the codec tells.

    def on_ready(self) -> None:
        """The peer's SETTINGS came: now its limit of streams is known."""
        if not self.settled:
            self.settled = True
            self.answered = True
            self.pool.proven()
        # Only HTTP/2 tells this.
        codec: Any = self.codec
        self.limit = min(self._most, codec.peer_max_streams)
        self.pool.released(self)

    def on_goaway(self, code: int, detail: str) -> None:
        """The endpoint wants no more streams here (GOAWAY, or ``connection: close``)."""
        if not self.retiring:
            self.pool.reactor.count(Counter.UPSTREAM_CLOSED_GOAWAY)
            self.pool.gone_away(code, detail)
        self.retire()

    def on_idle(self) -> None:
        """The last stream ended."""
        self.answered = True
        self.idle_since = self.pool.reactor.now
        if self.retiring:
            self._say_goodbye()
        else:
            self.pool.became_idle(self)

    def on_fault(self, code: int, detail: str) -> None:
        """The connection is broken; what is in the out-buffer says why."""
        if code == ErrorCode.HTTP_1_1_REQUIRED and not self.settled:
            self.pool.speaks_http1()
            self.settled = True
            self.answered = True
        self.retiring = True
        self.pool.retired(self)
        self.transport.close_gracefully()

    def on_cut(self, detail: str) -> None:
        """The stream was cancelled, which in HTTP/1.1 costs the connection: close it at once, so
        that the endpoint learns of it."""
        self.transport.close(detail)

    def count(self, name: str) -> None:
        """A limit was hit."""
        if name == "keepalive_timeout":
            name = "upstream_closed_keepalive_timeout"
        self.pool.reactor.count_name(name)

    def secured(self, now: float) -> None:
        """Nothing: the handshake was over before there was a connection."""

    # What the transport asks.

    def closed(self, detail: str) -> None:
        """The socket is gone."""
        self.retiring = True
        self.pool.reactor.count(Counter.UPSTREAM_CONNECTIONS_OPEN, -1)
        self.pool.closed(self, detail)

    def check(self, now: cython.double) -> cython.double:
        """Age and idleness; the next deadline."""
        if self.retiring:
            if now >= self.kill_at:
                self.transport.close("cluster max_connection_age_grace is over")
                return NEVER
            return self.kill_at
        if now >= self.retire_at:
            self.pool.reactor.count(Counter.UPSTREAM_CLOSED_AGE)
            self.kill_at = now + self._grace
            self.retire()
            return self.kill_at
        if not self.settled:
            if now < self._settle_until:
                return self._settle_until
            self.pool.reactor.count(Counter.UPSTREAM_CONNECT_TIMEOUT)
            self.transport.close("no SETTINGS within the cluster's connect_timeout")
            return NEVER
        if self.codec.streams:
            return self.retire_at
        idle_until: cython.double = self.pool.idle_until(self)
        if now >= idle_until:
            self.pool.reactor.count(Counter.UPSTREAM_CLOSED_IDLE)
            self.retire()
            return NEVER
        return min(idle_until, self.retire_at)

    def __repr__(self) -> str:
        state = "retiring" if self.retiring else "open"
        return f"<UpstreamConnection {self.pool.endpoint.key} {state} streams={self.streams}>"
