"""One request's life, from its head to the end of both streams.

An exchange owns the stream of the client (downstream) and, once an endpoint was picked, a stream to
it (upstream). Bytes go straight from one codec to the other by direct call; nothing is queued here
but the part of a request that may still have to be sent again.

**Phases.** route, pick, wait (only when no connection has room), dispatch, response head, body,
end. ``dispatch`` may happen more than once: a request goes to another endpoint when the first
certainly did not process it (dial failed, REFUSED_STREAM, above the last stream of a GOAWAY), as
long as no response has begun and all that was sent of it is still here.

**Replay.** What has come of the request body is kept until the response begins, up to
:data:`REPLAY_LIMIT` octets once it is being sent; a request that outgrows it is not sent again.
While a request waits for a connection its body is held back by the client's stream window.

**Early data.** A request that came before the TLS handshake was complete may be a copy that
somebody else sent. If it does no harm it goes to the endpoint at once, with ``early-data: 1``, else
it is held until the handshake is over. An endpoint that answers 425 gets it again then, once
(RFC 8470 section 5.2).

**Credit.** Octets are consumed on one side when they were moved to the out-buffer of the other,
and at most once however often they are sent.

**The end.** The exchange is over when both streams are closed. The endpoint's in-flight count falls
with the upstream stream. A client that is told the end before it sent all of its request is asked
to stop with RST_STREAM(NO_ERROR) (RFC 9113 section 8.1), when the upstream asked us the same or
the response is ours.
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

from gateway.balance import Endpoint, PickRequest
from gateway.errors import Failure, Kind, Side
from gateway.head import Field, Fields, RequestHead, ResponseHead
from gateway.net.reactor import Reactor
from gateway.proxy import rescue
from gateway.proxy.plan import Plan
from gateway.proxy.websocket import accepted_fields, accepts, new_key
from gateway.telemetry import FAILURES, Counter
from gateway.upstream.connection import UpstreamConnection
from gateway.wire import codec as why_codes
from gateway.wire.codec import Codec, Stream, StreamOwner
from gateway.wire.forwarding import VIA, VIA_HTTP1, response_fields
from gateway.wire.frames import ErrorCode
from gateway.wire.grpc import format_timeout

REPLAY_LIMIT: Final = 65_536
"""Octets of a request body kept for sending it again."""

_NEVER: float = cython.declare(cython.double, float("inf"))
_ENDED: int = cython.declare(cython.int, why_codes.ENDED)
_RESET: int = cython.declare(cython.int, why_codes.RESET)
_REFUSED: int = cython.declare(cython.int, why_codes.REFUSED)
_STALE: int = cython.declare(cython.int, why_codes.STALE)
_LOST: int = cython.declare(cython.int, why_codes.LOST)
_NO_ERROR: int = cython.declare(cython.int, int(ErrorCode.NO_ERROR))
_CANCEL: int = cython.declare(cython.int, int(ErrorCode.CANCEL))
_REPLAY_LIMIT: int = cython.declare(cython.Py_ssize_t, REPLAY_LIMIT)
_REQUESTS: int = cython.declare(cython.int, int(Counter.REQUESTS))
_DOWNSTREAM_STREAMS_OPEN: int = cython.declare(cython.int, int(Counter.DOWNSTREAM_STREAMS_OPEN))
_EXCHANGES_OPEN: int = cython.declare(cython.int, int(Counter.EXCHANGES_OPEN))
_RESPONSES_1XX: int = cython.declare(cython.int, int(Counter.RESPONSES_1XX))
_PROCESS_BUFFER_LIMIT: int = cython.declare(cython.int, int(Counter.PROCESS_BUFFER_LIMIT))
_GRPC_OK: int = cython.declare(cython.int, int(Counter.GRPC_OK))
_GRPC_ERROR: int = cython.declare(cython.int, int(Counter.GRPC_ERROR))
_IDEMPOTENT: frozenset[bytes] = cython.declare(
    frozenset, frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
)
_EARLY_DATA: Field = cython.declare(tuple, (b"early-data", b"1"))
_GRPC_STATUS_OK: Field = cython.declare(tuple, (b"grpc-status", b"0"))

_UPSTREAM_FAILURES: Final = {
    why_codes.RESET: (Kind.UPSTREAM_RESET, "reset the stream"),
    why_codes.REFUSED: (Kind.UPSTREAM_REFUSED, "refused the stream"),
    why_codes.VIOLATION: (Kind.UPSTREAM_PROTOCOL, "broke the protocol"),
    why_codes.LOST: (Kind.UPSTREAM_CLOSED, "closed the connection"),
    why_codes.STALE: (Kind.UPSTREAM_CLOSED, "closed the connection"),
    why_codes.STALLED: (Kind.STALLED, "read nothing for http2.stall_timeout"),
    why_codes.OVERFLOW: (Kind.OVERLOADED, "reads too slowly"),
}


class Exchange(StreamOwner):
    """See the module. ``codec`` and ``stream`` are the client's."""

    def __init__(
        self,
        reactor: Reactor,
        codec: Codec,
        stream: Stream,
        head: RequestHead,
    ) -> None:
        self.begin(reactor, codec, stream, head)

    def begin(
        self,
        reactor: Reactor,
        codec: Codec,
        stream: Stream,
        head: RequestHead,
    ) -> None:
        """What the constructor does. A downstream calls it directly, which costs a C call."""
        self.head = head
        self.wait_until = _NEVER
        self.waiting = False
        self.deadline = _NEVER
        self.over = False
        self._reactor = reactor
        self.last_activity = reactor.now
        self._counters = reactor.counters
        self._codec = codec
        self._stream = stream
        self._plan: Any = None
        self._route: Any = None
        self._pool: Any = None
        self._endpoint: Endpoint | None = None
        self._connection: Any = None
        self._upstream_codec: Any = None
        self._upstream_stream: Any = None
        self._tried: tuple[Endpoint, ...] = ()
        self._attempts = 0
        self._refused = False
        self._last_failure: Failure | None = None
        self._grpc = head.is_grpc
        self._grpc_deadline = False
        self._request_ended = stream.remote_closed
        self._request_trailers: Fields | None = None
        self._response_started = False
        self._response_ended = False
        self._failing = False
        self._stop_upload = False
        self._replay: Any = []
        self._replay_size = 0
        self._received = 0
        self._sent = 0
        self._credited = 0
        self._idle_timeout = _NEVER
        self._extra: Fields = ()
        self._response_extra: Fields = ()
        self._key = b""
        self._draining = False
        self._drained = 0
        self._early = False
        self._told_early = False
        self._held = False
        self._counters[_REQUESTS] += 1
        self._counters[_EXCHANGES_OPEN] += 1
        self._counters[_DOWNSTREAM_STREAMS_OPEN] += 1

    # -- route, pick, wait, dispatch ---------------------------------------------------------

    def start(self, plan: Plan) -> None:
        """Begin with the plan that was made of the head."""
        now: cython.double = self._reactor.now
        self._plan = plan
        self._response_extra = plan.response_extra
        if plan.answer is not None:
            self._answer(plan.answer)
            return
        route = plan.route
        if route is None:
            self.fail(Failure(plan.problem, Side.DOWNSTREAM, plan.detail))
            return
        self._route = route
        if plan.max_body >= 0 and self.head.content_length > plan.max_body:
            self._too_large(plan.max_body)
            return
        budget = self._reactor.budget
        if budget.total > budget.limit:
            self._reactor.count(_PROCESS_BUFFER_LIMIT)
            self.fail(
                Failure(
                    Kind.OVERLOADED,
                    Side.INTERNAL,
                    "the gateway holds gateway.max_buffered_bytes for slow peers",
                )
            )
            return
        self.deadline = now + plan.timeout
        timeout = self.head.grpc_timeout_s
        if timeout is not None and now + timeout < self.deadline:
            self.deadline = now + timeout
            self._grpc_deadline = True
        self._idle_timeout = plan.idle_timeout
        if self._idle_timeout != _NEVER:
            self._reactor.note(now + self._idle_timeout)
        if self.deadline != _NEVER:
            self._reactor.note(self.deadline)
        if not plan.has_request_id:
            self._extra = (plan.site.request_id_field(),)
        self._pick()

    def start_early(self, plan: Plan) -> None:
        """Begin although the TLS handshake is not complete."""
        self._early = True
        self.start(plan)

    def hold(self, plan: Plan) -> None:
        """Begin when the TLS handshake is complete."""
        self._early = True
        self._held = True
        self._plan = plan

    def secured(self) -> None:
        """The TLS handshake is complete."""
        self._early = False
        if not self._held or self._failing or self.over:
            return
        self._held = False
        if self._route is None:
            self.start(self._plan)
        else:
            self._pick()

    def _pick(self) -> None:
        now: cython.double = self._reactor.now
        cluster = self._plan.cluster
        request = PickRequest(self.head, self._plan.client)
        pool = cluster.pick(request, self._tried, now)
        if pool is None and self._refused:
            # All have refused it or can't be had: one that refused may take it now.
            pool = cluster.pick(request, (), now)
        if pool is None:
            self._no_endpoint(cluster.why_unavailable())
            return
        if cluster.settings.proxy_protocol is not None:
            # A connection says in its first octets whose it is.
            pool = pool.of_client(self._plan.peers)
        endpoint = pool.endpoint
        # Counted before anything is sent, so that the next pick sees it.
        endpoint.acquire()
        self._pool = pool
        self._endpoint = endpoint
        connection = pool.acquire(now)
        if connection is not None:
            self._dispatch(connection)
            return
        timeout = self._route.connect_timeout_s
        self.wait_until = now + (cluster.settings.pending_timeout_s if timeout is None else timeout)
        if not pool.wait(self, now):
            self._release()
            self.fail(
                Failure(
                    Kind.OVERLOADED,
                    Side.INTERNAL,
                    f"clusters.{cluster.name}.max_pending requests wait for a connection already",
                )
            )

    def _no_endpoint(self, detail: str) -> None:
        failure = self._last_failure
        if failure is None:
            failure = Failure(Kind.NO_ENDPOINT, Side.UPSTREAM, detail)
        self.fail(failure)

    def on_connection(self, connection: UpstreamConnection) -> None:
        """The pool has a connection for a request that waited."""
        self._dispatch(connection)

    def on_unavailable(self, failure: Failure) -> None:
        """The pool has none; another endpoint may."""
        self._release()
        self._retry(failure, True)

    def _retry(self, failure: Failure, elsewhere: cython.bint) -> None:
        """Try again what was not processed, on another endpoint where ``elsewhere``."""
        if (
            self._response_started
            or self._replay is None
            or self._attempts >= self._plan.cluster.settings.max_retries
            or not self._stream.open
        ):
            self.fail(failure)
            return
        self._attempts += 1
        self._last_failure = failure
        self._refused = failure.kind is Kind.UPSTREAM_REFUSED
        if elsewhere and self._pool is not None:
            self._tried = (*self._tried, self._pool.endpoint)
        self._counters[Counter.RETRIED] += 1
        self._sent = 0
        self._pick()

    def _dispatch(self, connection: UpstreamConnection) -> None:
        extra: Fields = self._extra
        fields: Fields
        end: cython.bint
        if self.head.grpc_timeout_s is not None:
            left: cython.double = self.deadline - self._reactor.now
            if left <= 0.0:
                self._release()
                connection.unused()
                self._expired()
                return
            extra = (*extra, (b"grpc-timeout", format_timeout(left)))
        if self._early and self.head.get(b"early-data") is None:
            # What the client said itself is passed on as it is.
            self._told_early = True
            extra = (*extra, _EARLY_DATA)
        if connection.http1:
            fields = self._plan.http1_fields()
            if self.head.protocol is not None and self.head.method == b"CONNECT":
                self._key = new_key()
                extra = (*extra, (b"sec-websocket-key", self._key))
        elif self.head.protocol is not None:
            self._release()
            connection.unused()
            self.fail(
                Failure(
                    Kind.UNSUPPORTED,
                    Side.INTERNAL,
                    f"{connection.pool.endpoint.key} speaks HTTP/2, and WebSocket is passed on "
                    "to HTTP/1.1 endpoints only",
                )
            )
            return
        else:
            fields = self._plan.fields
        replay = self._replay
        end = self._request_ended and not replay and self._request_trailers is None
        self._connection = connection
        codec = connection.codec
        self._upstream_codec = codec
        stream = connection.open_stream(self, fields, extra, end, self.head.method == b"HEAD")
        self._upstream_stream = stream
        if end or not (replay or self._request_ended):
            return
        trailers = self._request_trailers
        last: cython.Py_ssize_t = len(replay) - 1
        i: cython.Py_ssize_t
        for i in range(last + 1):
            ends = i == last and self._request_ended and trailers is None
            self._moved(codec.send_data(stream, replay[i], ends))
            if self._upstream_stream is not stream:
                return
        if trailers is not None:
            codec.send_trailers(stream, trailers)
        self._forget_if_large()

    def _moved(self, octets: cython.Py_ssize_t) -> None:
        """Octets of the request went to the upstream: the client may send as many more."""
        if octets:
            self._sent += octets
            if self._sent > self._credited:
                octets = self._sent - self._credited
                self._credited = self._sent
                self._codec.consume(self._stream, octets)

    def _forget_if_large(self) -> None:
        if self._replay is not None and self._replay_size > _REPLAY_LIMIT:
            self._replay = None

    # -- what the client does ----------------------------------------------------------------

    def request_data(self, data: bytes, end: cython.bint) -> None:
        """A piece of the request body."""
        n: cython.Py_ssize_t = len(data)
        self.last_activity = self._reactor.now
        self._received += n
        if end:
            self._request_ended = True
        if self._failing or (self._response_ended and self._upstream_stream is None):
            # Nobody reads it any more.
            self._codec.consume(self._stream, n)
            return
        if 0 <= self._plan.max_body < self._received:
            self._too_large(self._plan.max_body)
            return
        if self._replay is not None and (n or not self._replay):
            self._replay.append(data)
            self._replay_size += n
        if self._upstream_stream is not None:
            self._moved(self._upstream_codec.send_data(self._upstream_stream, data, end))
            self._forget_if_large()
        elif self._replay is None:
            self._codec.consume(self._stream, n)

    def request_trailers(self, fields: Fields) -> None:
        """The request ended with trailers."""
        self.last_activity = self._reactor.now
        self._request_ended = True
        self._request_trailers = fields
        if self._upstream_stream is not None:
            self._upstream_codec.send_trailers(self._upstream_stream, fields)

    def response_drained(self, octets: cython.Py_ssize_t) -> None:
        """Octets of the response that had waited were moved to the client's out-buffer."""
        self.last_activity = self._reactor.now
        if self._upstream_stream is not None:
            self._upstream_codec.consume(self._upstream_stream, octets)
        if self._stop_upload:
            self._stop_when_sent()

    def request_closed(self, why: cython.int, code: cython.longlong) -> None:
        """The client's stream is over."""
        if why != _ENDED:
            self._failing = True
            if why == _RESET or why == _REFUSED or why == _LOST:  # noqa: SIM109 - in C
                self._counters[Counter.CANCELLED_BY_CLIENT] += 1
                self._counters[FAILURES[Kind.CLIENT_CANCELLED]] += 1
            elif why == why_codes.STALLED:
                self._counters[FAILURES[Kind.STALLED]] += 1
            elif why == why_codes.OVERFLOW:
                self._counters[FAILURES[Kind.OVERLOADED]] += 1
            else:
                self._counters[FAILURES[Kind.MALFORMED_REQUEST]] += 1
            if not self._begin_draining():
                self._abandon()
        elif not self._request_ended:
            # It was told that the rest is not wanted.
            self._abandon()
        self._finish()

    def _begin_draining(self) -> cython.bint:
        """Read the response to its end although nobody waits for it, where the cluster says so."""
        settings = self._plan.cluster.settings if self._plan.cluster is not None else None
        if (
            settings is None
            or settings.on_cancel != "drain"
            or self._upstream_stream is None
            or not self._request_ended
            or self.head.protocol is not None
        ):
            return False
        self._draining = True
        self._counters[Counter.RESPONSES_DRAINED] += 1
        self._plan.site.orphans.add(self)
        self._reactor.note(self.check_orphan(self._reactor.now))
        return True

    def _drain(self, octets: cython.Py_ssize_t) -> None:
        self._drained += octets
        limit = self._plan.cluster.settings.drain_limit
        if limit is not None and self._drained > limit:
            self._abandon()
            self._finish()
        else:
            self._upstream_codec.consume(self._upstream_stream, octets)

    def check_orphan(self, now: cython.double) -> cython.double:
        """Give up a response that is drained for too long; the next deadline."""
        at: cython.double = self.deadline
        if self._idle_timeout != _NEVER:
            at = min(at, self.last_activity + self._idle_timeout)
        if now >= at:
            self._abandon()
            self._finish()
            return _NEVER
        return at

    # -- what the endpoint does --------------------------------------------------------------

    def request_drained(self, octets: cython.Py_ssize_t) -> None:
        """Octets of the request that had waited were moved to the endpoint's out-buffer."""
        self.last_activity = self._reactor.now
        self._moved(octets)

    def response_informational(self, head: ResponseHead) -> None:
        """A 1xx response: passed on."""
        self._replay = None
        self.last_activity = self._reactor.now
        self._counters[_RESPONSES_1XX] += 1
        self._codec.send_head(self._stream, response_fields(head, via=self._via()), (), False)

    def _via(self) -> bytes:
        via: bytes = VIA_HTTP1 if self._connection.http1 else VIA
        return via

    def response_head(self, head: ResponseHead, end: cython.bint) -> None:
        """The response begins."""
        self.last_activity = self._reactor.now
        if head.status == 425 and self._told_early and self._replay is not None:
            self._too_early()
            return
        self._replay = None
        self._response_started = True
        fields: Fields | None = head.memo
        if fields is None:
            fields = head.memo = response_fields(head, via=self._via())
        if head.status == 101:
            if self.head.method == b"CONNECT":
                if not accepts(head, self._key):
                    self._broken_upgrade()
                    return
                fields = accepted_fields(fields)
        self._counters[_RESPONSES_1XX - 1 + head.status // 100] += 1
        if end:
            self._response_ended = True
            if self._grpc:
                self._count_grpc(head.fields)
        self._codec.send_head(self._stream, fields, self._response_extra, end)

    def _too_early(self) -> None:
        """The endpoint wants to be sure: ask again when the TLS handshake is complete."""
        self._counters[Counter.TOO_EARLY_RETRIED] += 1
        self._told_early = False
        replay = self._replay
        self._abandon()
        self._replay = replay
        self._sent = 0
        if self._early:
            self._held = True
        else:
            self._pick()

    def _broken_upgrade(self) -> None:
        self._response_started = False
        self._counters[Counter.RESET_BY_UPSTREAM] += 1
        self.fail(
            Failure(
                Kind.UPSTREAM_PROTOCOL,
                Side.UPSTREAM,
                f"{self._connection.pool.endpoint.key} answered the WebSocket key wrongly",
            )
        )

    def response_data(self, data: bytes, end: cython.bint) -> None:
        """A piece of the response body."""
        sent: cython.Py_ssize_t
        self.last_activity = self._reactor.now
        if end:
            self._response_ended = True
        if self._draining:
            if not end:
                self._drain(len(data))
            return
        sent = self._codec.send_data(self._stream, data, end)
        if sent and not end and self._upstream_stream is not None:
            self._upstream_codec.consume(self._upstream_stream, sent)

    def response_trailers(self, fields: Fields) -> None:
        """The response ended with trailers."""
        self.last_activity = self._reactor.now
        self._response_ended = True
        if self._grpc:
            self._count_grpc(fields)
        self._codec.send_trailers(self._stream, fields)

    def _count_grpc(self, fields: Fields) -> None:
        if _GRPC_STATUS_OK in fields:
            self._counters[_GRPC_OK] += 1
        else:
            self._counters[_GRPC_ERROR] += 1

    def response_closed(self, why: cython.int, code: cython.longlong) -> None:
        """The endpoint's stream is over."""
        stream = self._upstream_stream
        connection = self._connection
        self._upstream_stream = None
        if connection is None:
            return
        self._release()
        if self._response_ended:
            # Whatever ended it, the response is whole.
            if why != _ENDED:
                self._stop_when_sent()
        else:
            self._upstream_failed(stream, connection, why, code)
        connection.stream_closed()
        self._finish()

    def _upstream_failed(
        self,
        stream: Stream,
        connection: UpstreamConnection,
        why: cython.int,
        code: cython.longlong,
    ) -> None:
        if self._failing or not self._stream.open:
            return
        kind, what = _UPSTREAM_FAILURES[why]
        detail = f"{connection.pool.endpoint.key} {what}"
        if stream.detail:
            detail = f"{detail}: {stream.detail}"
        elif why == _RESET:
            detail = f"{detail} with code {code}"
        refused: cython.bint = why == _REFUSED or (
            why == _STALE and self.head.method in _IDEMPOTENT
        )
        failure = Failure(
            kind,
            Side.UPSTREAM,
            detail,
            retryable=refused,
            h2_code=code if why == _RESET or refused else -1,
        )
        if refused:
            # After a GOAWAY, and when an idle connection had died, the endpoint itself is still
            # good, on another connection.
            self._retry(failure, not connection.retiring and why != _STALE)
        else:
            self._counters[Counter.RESET_BY_UPSTREAM] += 1
            self.fail(failure)

    # -- failure and end ---------------------------------------------------------------------

    def _too_large(self, limit: cython.longlong) -> None:
        self.fail(
            Failure(
                Kind.REQUEST_TOO_LARGE,
                Side.DOWNSTREAM,
                f"the request body is above the route's max_request_body of {limit} bytes",
            )
        )

    def _expired(self) -> None:
        if self._grpc_deadline:
            self.fail(
                Failure(Kind.DEADLINE_EXCEEDED, Side.DOWNSTREAM, "the grpc-timeout has passed")
            )
        else:
            self.fail(
                Failure(
                    Kind.REQUEST_TIMEOUT,
                    Side.UPSTREAM,
                    "no whole response within the route's timeout",
                )
            )

    def check(self, now: cython.double) -> cython.double:
        """End what is overdue; the next deadline."""
        if self._failing:
            return _NEVER
        if now >= self.deadline:
            self._expired()
            return _NEVER
        at: cython.double = self.deadline
        if self._idle_timeout != _NEVER:
            idle: cython.double = self.last_activity + self._idle_timeout
            if now >= idle:
                self.fail(
                    Failure(
                        Kind.IDLE_TIMEOUT,
                        Side.UPSTREAM,
                        "no byte in either direction for the route's idle_timeout",
                    )
                )
                return _NEVER
            if idle < at:
                at = idle
        return at

    def fail(self, failure: Failure) -> None:
        """Answer the client with what :mod:`gateway.proxy.rescue` makes of the failure."""
        if self._failing:
            return
        self._failing = True
        self._counters[FAILURES[failure.kind]] += 1
        self._abandon()
        codec = self._codec
        stream = self._stream
        if stream.open and not self._response_ended:
            self._response_ended = True
            if not self._response_started:
                answer = rescue.rescue(failure, grpc=self._grpc)
                status = int(answer.fields[0][1])
                self._counters[_RESPONSES_1XX - 1 + status // 100] += 1
                if self._grpc:
                    self._counters[_GRPC_ERROR] += 1
                bodiless = not answer.body or self.head.method == b"HEAD"
                codec.send_head(stream, answer.fields, self._response_extra, bodiless)
                if not bodiless:
                    codec.send_data(stream, answer.body, True)
                self._stop_when_sent()
            elif self._grpc:
                self._counters[_GRPC_ERROR] += 1
                codec.send_trailers(stream, rescue.trailers(failure))
                self._stop_when_sent()
            else:
                codec.reset(stream, rescue.reset_code(failure))
        elif stream.open:
            # The response is whole, but the client does not come to the end of its request.
            self._stop_when_sent()
        self._finish()

    def _answer(self, fields: Fields) -> None:
        """Answer by ourselves, without a body."""
        self._failing = True
        self._response_ended = True
        self._counters[_RESPONSES_1XX - 1 + int(fields[0][1]) // 100] += 1
        self._codec.send_head(self._stream, fields, (), True)
        self._stop_when_sent()
        self._finish()

    def _stop_when_sent(self) -> None:
        """Ask the client to stop sending, as soon as the response is in its out-buffer."""
        stream = self._stream
        if not stream.open:
            return
        if stream.local_closed:
            self._stop_upload = False
            self._codec.reset(stream, _NO_ERROR)
            self._finish()
        else:
            self._stop_upload = True

    def _abandon(self) -> None:
        """Leave the queue or reset the upstream stream, whichever it is."""
        if self.waiting:
            self._pool.cancel(self)
        stream = self._upstream_stream
        if stream is not None:
            self._upstream_stream = None
            connection = self._connection
            self._upstream_codec.reset(stream, _CANCEL)
            self._release()
            connection.stream_closed()
        else:
            self._release()
        self._replay = None

    def _release(self) -> None:
        """The endpoint has one stream less in flight."""
        endpoint = self._endpoint
        if endpoint is not None:
            self._endpoint = None
            self._connection = None
            endpoint.release()

    def _finish(self) -> None:
        if self.over or self._stream.open or self._upstream_stream is not None or self.waiting:
            return
        self.over = True
        if self._draining:
            self._plan.site.orphans.discard(self)
        self._counters[_EXCHANGES_OPEN] -= 1
        self._counters[_DOWNSTREAM_STREAMS_OPEN] -= 1

    def __repr__(self) -> str:
        return f"<Exchange {self.head!r} endpoint={self._endpoint!r} over={bool(self.over)}>"
