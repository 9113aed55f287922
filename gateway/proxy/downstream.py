"""The server side: one client connection, its requests and their plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
    from gateway.proxy.opening import Opening
    from gateway.proxy.translation import Translation
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway import config
from gateway.errors import Failure, Kind, Side
from gateway.head import Field, Fields, RequestHead
from gateway.net.addresses import Peers
from gateway.net.networks import Networks
from gateway.net.reactor import Reactor
from gateway.net.transport import Transport
from gateway.proxy import compression, grpc_web
from gateway.proxy.exchange import Exchange
from gateway.proxy.plan import Plan
from gateway.proxy.rescue import rescue
from gateway.routing import RouteTable
from gateway.routing.cors import CorsPolicy
from gateway.telemetry import FAILURES, Counter
from gateway.upstream.cluster import Cluster
from gateway.wire.codec import NEVER, Codec, Stream, StreamOwner
from gateway.wire.forwarding import VIA, VIA_HTTP1, effective_client, request_fields
from gateway.wire.http1.server import Server
from gateway.wire.http2.connection import Connection

_TWO_DIGITS: Final = tuple(b"%02x" % number for number in range(256))


class Site:
    """What all downstream connections of a worker share: routes and clusters."""

    def __init__(
        self, reactor: Reactor, settings: config.Config, clusters: dict[str, Cluster]
    ) -> None:
        self.reactor = reactor
        self.settings = settings
        self.routes = RouteTable(settings.routes)
        self.clusters = clusters
        self.cors = {
            id(route): CorsPolicy(route.cors) for route in settings.routes if route.cors is not None
        }
        self.connections: set[Downstream] = set()
        # Connections of which it is not known yet what they speak.
        self.openings: set[Opening] = set()
        # Exchanges whose client has gone and whose response is read to its end all the same.
        self.orphans: set[Exchange] = set()
        self.draining = False
        self._request_ids = count()
        self._id_start = b""
        reactor.add_check(self.check_orphans)

    def request_id_field(self) -> Field:
        """A new ``x-request-id``.

        32 hexadecimal digits: 64 random bits, drawn anew every 256 requests, then a count. Unique
        over workers and restarts.
        """
        number = next(self._request_ids)
        if not number & 0xFF:
            self._id_start = b"%s%014x" % (os.urandom(8).hex().encode(), number >> 8)
        return (b"x-request-id", self._id_start + _TWO_DIGITS[number & 0xFF])

    def check_orphans(self, now: float) -> float:
        """End orphans that are overdue; the next deadline."""
        return min((orphan.check_orphan(now) for orphan in list(self.orphans)), default=NEVER)

    def drain(self) -> None:
        """Ask every client to go elsewhere and let their streams finish."""
        self.draining = True
        for opening in list(self.openings):
            opening.end()
        for connection in list(self.connections):
            connection.drain()
        self.reactor.wake()

    def end_all(self) -> None:
        """Drain no longer: fail what is still open, so that its clients learn why."""
        for connection in list(self.connections):
            connection.end()
        self.reactor.wake()


class Origin(NamedTuple):
    """Where a client's connection comes from, and what is believed of it.

    ``client`` is its address as text, empty for a unix socket. ``hops`` are the addresses whose
    ``x-forwarded-*`` fields are believed; ``trusted`` says whether this client is one of them.
    ``certificate`` is what it proved to be, as an element of ``x-forwarded-client-cert``.
    """

    client: bytes
    peers: Peers
    hops: Networks
    trusted: bool
    scheme: bytes = b"http"
    certificate: bytes = b""


class Downstream:
    """The handler of a server's codec: of HTTP/1.1 if ``http1``, else of HTTP/2.

    ``handshake_until`` is when a TLS handshake that still goes on must be complete: requests that
    come before it are early data, and ``secured`` is called at its end.
    """

    def __init__(
        self,
        site: Site,
        transport: Transport,
        origin: Origin,
        http1: bool,
        idle_timeout_s: float | None,
        released: Callable[[], None],
        secured: Callable[[float], None] | None = None,
        handshake_until: float = NEVER,
    ) -> None:
        self._site = site
        self.reactor = site.reactor
        self._secured = secured
        self._handshake_until = handshake_until
        self._early: list[Exchange] = []
        self.client = origin.client
        self._origin = origin
        self._via = VIA_HTTP1 if http1 else VIA
        self._transport = transport
        self._released = released
        self._idle_timeout = NEVER if idle_timeout_s is None else idle_timeout_s
        self._idle_since = site.reactor.now
        self._counters = site.reactor.counters
        reactor = site.reactor
        settings = site.settings
        if http1:
            self.codec: Codec = Server(
                settings.http1,
                settings.http2,
                self,
                reactor.budget,
                reactor.flush_list,
                transport,
                reactor.now,
                origin.scheme,
            )
        else:
            self.codec = Connection(
                False,
                settings.http2,
                self,
                reactor.budget,
                reactor.flush_list,
                transport,
                reactor.now,
            )
        site.connections.add(self)
        reactor.note(min(self._idle_since + self._idle_timeout, handshake_until))
        transport.switch(self.codec, self)

    # What the codec tells.

    def on_request(self, stream: Stream, head: RequestHead) -> None:
        """A request begins."""
        plan: Plan | None = head.memo
        if plan is None:
            plan = self._plan(head)
            head.memo = plan
        if head.protocol is not None and plan.head.protocol is None:
            # The upgrade is not taken up: the request ends with its head.
            stream.remote_closed = True
        exchange: Exchange = Exchange.__new__(Exchange)
        if plan.translations:
            self._translate(plan, stream, exchange)
        else:
            exchange.begin(self.reactor, self.codec, stream, plan.head)
            stream.owner = exchange
        if self._handshake_until == NEVER:
            exchange.start(plan)
        else:
            self._start_early(plan, exchange)

    def _start_early(self, plan: Plan, exchange: Exchange) -> None:
        """A request in early data, which anybody may have sent again (RFC 8470 section 3)."""
        self._early.append(exchange)
        if plan.route is None or _replay_safe(plan.head, plan.route.early_data):
            self.reactor.count(Counter.EARLY_DATA_FORWARDED)
            exchange.start_early(plan)
        else:
            self.reactor.count(Counter.EARLY_DATA_HELD)
            exchange.hold(plan)

    def secured(self, now: float) -> None:
        """The TLS handshake is complete: what waited for it may go."""
        self._handshake_until = NEVER
        if self._secured is not None:
            self._secured(now)
        early, self._early = self._early, []
        for exchange in early:
            exchange.secured()

    def _translate(self, plan: Plan, stream: Stream, exchange: Exchange) -> None:
        """Put what changes the message between the client and the exchange."""
        codec = self.codec
        below: Translation | None = None
        for make in plan.translations:
            translation = make(codec, stream)
            if below is None:
                stream.owner = translation.ear
            else:
                below.owner = translation.ear
            below = codec = translation
        assert below is not None
        exchange.begin(self.reactor, codec, stream, plan.head)
        below.owner = exchange

    def _plan(self, head: RequestHead) -> Plan:
        """Route a request and prepare the fields to forward."""
        site = self._site
        origin = self._origin
        client = origin.client
        if origin.trusted:
            client = effective_client(head, client, origin.hops)
        route = site.routes.match(head)
        path = head.path.partition(b"?")[0][:200].decode("ascii", "replace")
        if head.method == b"CONNECT" and head.protocol is None:
            plan = Plan(site, head, client, origin.peers)
            return plan.fails(Kind.UNSUPPORTED, "CONNECT is not supported here")
        if route is None:
            plan = Plan(site, head, client, origin.peers)
            return plan.fails(Kind.NO_ROUTE, f"no route matches {path}")
        if head.protocol is not None and not (route.websocket and head.protocol == b"websocket"):
            if head.method == b"CONNECT":
                plan = Plan(site, head, client, origin.peers)
                return plan.fails(Kind.UNSUPPORTED, "this route passes no upgrade on")
            head = head.with_protocol(None)
        mode = grpc_web.mode_of(head) if route.grpc_web else None
        if mode is not None:
            head = grpc_web.as_grpc(head, mode)
        plan = Plan(site, head, client, origin.peers)
        policy = site.cors.get(id(route))
        if policy is not None:
            plan.answer = policy.preflight(head)
            plan.response_extra = policy.origin_fields(head)
        translations: list[Callable[[Codec, Stream], Translation]] = []
        if mode is not None:
            translations.append(partial(grpc_web.GrpcWeb, mode=mode))
        elif route.compression is not None:
            wanted = compression.wanted(head, route.compression)
            if wanted is not None:
                translations.append(wanted)
        plan.translations = tuple(translations)
        fields = request_fields(
            head,
            client=origin.client,
            scheme=origin.scheme,
            trusted=origin.trusted,
            via=self._via,
            certificate=origin.certificate,
        )
        plan.forwards(route, site.clusters[route.cluster], fields)
        return plan

    def on_bad_request(self, stream: Stream, kind: str, detail: str) -> None:
        """A request that is refused before it is one; the codec resets the stream if it must."""
        problem = Kind(kind)
        failure = Failure(problem, Side.DOWNSTREAM, detail)
        self._counters[FAILURES[problem]] += 1
        self._counters[Counter.RESPONSES_4XX] += 1
        answer = rescue(failure, grpc=False)
        stream.owner = _Discard(self.codec, stream)
        self.codec.send_head(stream, answer.fields, (), not answer.body)
        if answer.body:
            self.codec.send_data(stream, answer.body, True)
        if stream.open and stream.local_closed and problem is Kind.HEADERS_TOO_LARGE:
            self.codec.reset(stream, 0)

    def on_bad_body(self, stream: Stream, detail: str) -> None:
        """A body of HTTP/1.1 that is not framed as it should be."""
        stream.owner.fail(Failure(Kind.MALFORMED_REQUEST, Side.DOWNSTREAM, detail))

    def on_cut(self, detail: str) -> None:
        """A response whose end only the end of the connection could tell is not whole."""
        self._transport.abort(detail)

    def on_ready(self) -> None:
        """The client's SETTINGS change nothing here."""

    def on_goaway(self, code: int, detail: str) -> None:
        """The client opens no more streams; those that are open go on."""

    def on_idle(self) -> None:
        """The last stream ended."""
        self._idle_since = self.reactor.now
        if self.codec.leaving and self.codec.is_finished():
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
        if now >= self._handshake_until:
            self.reactor.count(Counter.TLS_HANDSHAKE_TIMEOUT)
            self._transport.close("no TLS handshake within tls.handshake_timeout")
            return NEVER
        if streams:
            for stream in list(streams.values()):
                exchange = stream.owner
                if exchange is not None:
                    at = exchange.check(now)
                    if at < earliest:
                        earliest = at
            return min(earliest, self._handshake_until)
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


def _replay_safe(head: RequestHead, safe: tuple[str, ...]) -> bool:
    """Whether a request is one of those that do no harm when they are sent again."""
    if head.protocol is not None:
        return False
    if head.is_grpc:
        return head.path.partition(b"?")[0].decode("ascii", "replace") in safe
    return head.method.decode("ascii", "replace") in safe


class _Discard(StreamOwner):
    """Owns a stream that was answered before it became an exchange: its body is thrown away."""

    __slots__ = ("_codec", "_stream")

    def __init__(self, codec: Codec, stream: Stream) -> None:
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
