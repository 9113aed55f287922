"""The server side: one client connection, its requests and their plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway import config
from gateway.errors import Failure, Kind, Side
from gateway.head import Fields, RequestHead
from gateway.net.reactor import Reactor
from gateway.net.transport import Transport
from gateway.proxy.exchange import Exchange
from gateway.proxy.plan import Plan
from gateway.proxy.rescue import rescue
from gateway.routing import RouteTable
from gateway.telemetry import FAILURES, Counter
from gateway.upstream.cluster import Cluster
from gateway.wire.forwarding import request_fields
from gateway.wire.hpack import encode_literal
from gateway.wire.http2.connection import Connection
from gateway.wire.http2.stream import Stream, StreamOwner

NEVER: Final = float("inf")
_TWO_DIGITS: Final = tuple(b"%02x" % number for number in range(256))


class Site:
    """What all downstream connections of a worker share: routes and clusters."""

    def __init__(
        self, reactor: Reactor, settings: config.Config, clusters: dict[str, Cluster]
    ) -> None:
        self.reactor = reactor
        self.limits = settings.http2
        self.routes = RouteTable(settings.routes)
        self.clusters = clusters
        self.connections: set[Downstream] = set()
        self.draining = False
        self._request_ids = count()
        self._id_field = b""

    def request_id_field(self) -> bytes:
        """A new ``x-request-id``, encoded for HPACK.

        32 hexadecimal digits: 64 random bits, drawn anew every 256 requests, then a count. Unique
        over workers and restarts.
        """
        number = next(self._request_ids)
        if not number & 0xFF:
            start = b"%s%014x" % (os.urandom(8).hex().encode(), number >> 8)
            self._id_field = encode_literal(b"x-request-id", start + b"00")[:-2]
        return self._id_field + _TWO_DIGITS[number & 0xFF]

    def plan(self, head: RequestHead, client: bytes) -> Plan:
        """Route a request and prepare the fields to forward."""
        if head.method == b"CONNECT":
            return Plan(
                self, None, None, (), False, Kind.UNSUPPORTED, "CONNECT is not supported here"
            )
        route = self.routes.match(head)
        if route is None:
            path = head.path.partition(b"?")[0][:200].decode("ascii", "replace")
            return Plan(self, None, None, (), False, Kind.NO_ROUTE, f"no route matches {path}")
        fields = request_fields(head, client=client, scheme=b"http")
        has_request_id = head.get(b"x-request-id") is not None
        return Plan(self, route, self.clusters[route.cluster], fields, has_request_id)

    def drain(self) -> None:
        """Ask every client to go elsewhere and let their streams finish."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        self.reactor.wake()

    def end_all(self) -> None:
        """Drain no longer: fail what is still open, so that its clients learn why."""
        for connection in list(self.connections):
            connection.end()
        self.reactor.wake()


class Downstream:
    """The handler of a server :class:`~gateway.wire.http2.Connection`."""

    def __init__(
        self,
        site: Site,
        transport: Transport,
        client: bytes,
        idle_timeout_s: float | None,
        released: Callable[[], None],
    ) -> None:
        self._site = site
        self.reactor = site.reactor
        self.client = client
        self._transport = transport
        self._released = released
        self._idle_timeout = NEVER if idle_timeout_s is None else idle_timeout_s
        self._idle_since = site.reactor.now
        self._counters = site.reactor.counters
        self.codec = Connection(
            False,
            site.limits,
            self,
            site.reactor.budget,
            site.reactor.flush_list,
            transport,
            site.reactor.now,
        )
        site.connections.add(self)
        self.reactor.note(self._idle_since + self._idle_timeout)
        transport.start(self.codec, self)

    # What the codec tells.

    def on_request(self, stream: Stream, head: RequestHead) -> None:
        """A request begins."""
        plan: Plan | None = head.memo
        if plan is None or plan.site is not self._site:
            plan = self._site.plan(head, self.client)
            head.memo = plan
        exchange: Exchange = Exchange.__new__(Exchange)
        exchange.begin(self.reactor, self.codec, self.client, stream, head)
        stream.owner = exchange
        exchange.start(plan)

    def on_bad_request(self, stream: Stream, kind: str, detail: str) -> None:
        """A request that is refused before it is one; the codec resets the stream if it must."""
        problem = Kind(kind)
        failure = Failure(problem, Side.DOWNSTREAM, detail)
        self._counters[FAILURES[problem]] += 1
        self._counters[Counter.RESPONSES_4XX] += 1
        answer = rescue(failure, grpc=False)
        stream.owner = _Discard(self.codec, stream)
        self.codec.send_head(stream, answer.fields, b"", not answer.body)
        if answer.body:
            self.codec.send_data(stream, answer.body, True)
        if stream.open and stream.local_closed and problem is Kind.HEADERS_TOO_LARGE:
            self.codec.reset(stream, 0)

    def on_ready(self) -> None:
        """The client's SETTINGS change nothing here."""

    def on_goaway(self, code: int, detail: str) -> None:
        """The client opens no more streams; those that are open go on."""

    def on_idle(self) -> None:
        """The last stream ended."""
        self._idle_since = self.reactor.now
        if self.codec.leaving and self.codec.finished:
            self._transport.close_gracefully()

    def on_fault(self, code: int, detail: str) -> None:
        """The connection is broken; the GOAWAY in the out-buffer says why."""
        self._transport.close_gracefully()

    def count(self, name: str) -> None:
        """A limit was hit."""
        self.reactor.count_name(name)

    # What the transport asks.

    def closed(self, detail: str) -> None:
        """The socket is gone."""
        self._site.connections.discard(self)
        self._released()

    def check(self, now: cython.double) -> cython.double:
        """Overdue exchanges, and idleness; the next deadline."""
        streams = self.codec.streams
        earliest: cython.double = NEVER
        at: cython.double
        if streams:
            for stream in list(streams.values()):
                exchange = stream.owner
                if exchange is not None:
                    at = exchange.check(now)
                    if at < earliest:
                        earliest = at
            return earliest
        earliest = self._idle_since + self._idle_timeout
        if now >= earliest:
            self.drain()
            return NEVER
        return earliest

    def drain(self) -> None:
        """Finish: GOAWAY, then close when the last stream has ended."""
        self.codec.go_away(self.reactor.now)
        self.reactor.note(self.codec.deadline)

    def end(self) -> None:
        """Fail what is open, and close."""
        failure = Failure(Kind.DRAINING, Side.INTERNAL, "the gateway is shutting down")
        for stream in list(self.codec.streams.values()):
            stream.owner.fail(failure)
        self._transport.close_gracefully()

    def __repr__(self) -> str:
        return f"<Downstream {self.client!r} {self.codec!r}>"


class _Discard(StreamOwner):
    """Owns a stream that was answered before it became an exchange: its body is thrown away."""

    __slots__ = ("_codec", "_stream")

    def __init__(self, codec: Connection, stream: Stream) -> None:
        self._codec = codec
        self._stream = stream

    def request_data(self, data: bytes, end: bool) -> None:
        self._codec.consume(self._stream, len(data))

    def request_trailers(self, fields: Fields) -> None:
        pass

    def request_closed(self, why: int, code: int) -> None:
        pass

    def response_drained(self, octets: int) -> None:
        pass

    def fail(self, failure: Failure) -> None:
        pass

    def check(self, now: float) -> float:
        return NEVER
