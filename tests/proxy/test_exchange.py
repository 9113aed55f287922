"""One request's life between a client and endpoints that are spoken by the ``h2`` library."""

from __future__ import annotations

import contextlib

import pytest

from gateway import config
from gateway.errors import Kind
from gateway.proxy.exchange import REPLAY_LIMIT
from gateway.telemetry import FAILURES, Counter
from gateway.wire.grpc import parse_timeout
from tests.rig import (
    CANCEL,
    GRPC,
    GRPC_OK,
    INTERNAL,
    NO_ERROR,
    OK_TRAILERS,
    REFUSED,
    Backend,
    Message,
    Peer,
    Rig,
    goaway,
    request,
)
from tests.upstream.test_pool import blackhole

POST = request(b"POST")


class Journey:
    """One client, one cluster of one or two endpoints."""

    def __init__(self, rig: Rig, *backends: Backend, route: dict | None = None, **settings) -> None:
        self.rig = rig
        self.backends = backends
        self.cluster = rig.cluster(*(b.address for b in backends), **settings)
        self.site = rig.site(self.cluster, routes=[config.Route(cluster="c", **(route or {}))])
        self.client = rig.connect(self.site)

    def warm(self) -> None:
        """Open a connection to every endpoint, so that nothing has to wait for one."""
        self.cluster.prepare()
        pools = [
            pool
            for pool in self.cluster.pools.values()
            if pool.endpoint.key in {backend.address for backend in self.backends}
        ]
        for pool in pools:
            if not pool.connections:
                pool._dial()
        self.rig.until(lambda: all(p.connections and p.connections[0].codec.settled for p in pools))

    def over(self, stream_id: int) -> Message:
        """Wait for the end of the client's stream."""
        message = self.client.message(stream_id)
        self.rig.until(lambda: message.over, f"the end of {message}")
        return message


@pytest.fixture
def journey(rig: Rig, backend: Backend) -> Journey:
    return Journey(rig, backend)


# ------------------------------------------------------------------------------------- whole


def test_a_request_and_its_response(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(request(b"POST", b"/a?b=c", (b"x-a", b"1")), b"hello")
    peer, at, asked = backend.request()
    rig.until(lambda: asked.ended)
    assert asked.body == b"hello"
    assert asked.fields[b":path"] == b"/a?b=c"
    assert asked.fields[b"x-a"] == b"1"
    assert asked.fields[b"x-forwarded-for"] == b"192.0.2.7"
    assert asked.fields[b"via"] == b"2 gateway"
    assert {endpoint.in_flight for endpoint in rig.endpoints} == {1}
    peer.reply(at, b"world")
    assert journey.over(stream_id).summary() == (200, b"world", None, True, None)
    assert rig.count(Counter.REQUESTS) == rig.count(Counter.RESPONSES_2XX) == 1
    assert {endpoint.in_flight for endpoint in rig.endpoints} == {0}


def test_request_id_is_kept_or_made(rig: Rig, backend: Backend, journey: Journey) -> None:
    ids = []
    for number, more in enumerate([(), (), ((b"x-request-id", b"mine"),)]):
        stream_id = journey.client.send(request(b"GET", b"/", *more))
        peer, at, asked = backend.request(number)
        ids.append(asked.fields[b"x-request-id"])
        peer.reply(at)
        journey.over(stream_id)
    assert ids[2] == b"mine"
    assert ids[0] != ids[1]
    assert all(len(value) == 32 and bytes.fromhex(value.decode()) for value in ids[:2])


def test_interim_responses_are_passed_on(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, end=False)
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"100")])
    peer.head(at, [(b":status", b"103"), (b"link", b"</a>")])
    message = journey.client.message(stream_id)
    rig.until(lambda: len(message.interim) == 2)
    assert [head[b":status"] for head in message.interim] == [b"100", b"103"]
    assert message.interim[1][b"link"] == b"</a>"
    journey.client.data(stream_id, b"x", end=True)
    peer.reply(at)
    assert journey.over(stream_id).summary() == (200, b"ok", None, True, None)
    assert rig.count(Counter.RESPONSES_1XX) == 2


def test_head_keeps_its_content_length(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(request(b"HEAD"))
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"200"), (b"content-length", b"1000")], end=True)
    message = journey.over(stream_id)
    assert message.summary() == (200, b"", None, True, None)
    assert message.fields[b"content-length"] == b"1000"


def test_head_that_fails_has_no_body(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(request(b"HEAD"))
    peer, at, _ = backend.request()
    peer.rst(at, INTERNAL)
    message = journey.over(stream_id)
    assert message.summary() == (502, b"", None, True, None)
    assert message.fields[b"x-gateway-error"] == b"upstream_reset"


def test_trailers_both_ways(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, b"body", end=False)
    journey.client.head(stream_id, [(b"x-sum", b"1")], end=True)
    peer, at, asked = backend.request()
    rig.until(lambda: asked.ended)
    assert (asked.body, asked.trailers) == (b"body", {b"x-sum": b"1"})
    peer.head(at, [(b":status", b"200")])
    peer.data(at, b"answer")
    peer.head(at, [(b"x-sum", b"2")], end=True)
    assert journey.over(stream_id).summary() == (200, b"answer", {b"x-sum": b"2"}, True, None)


def test_response_trailers_wait_for_pending_data(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    client = rig.connect(journey.site, settings={4: 10})  # INITIAL_WINDOW_SIZE
    client.crediting = False
    stream_id = client.send(GRPC, b"")
    peer, at, _ = backend.request()
    peer.head(at, GRPC_OK)
    peer.data(at, b"0123456789abcdef")
    peer.head(at, OK_TRAILERS, end=True)
    message = client.message(stream_id)
    rig.until(lambda: message.body == b"0123456789")
    rig.settle()
    assert (message.trailers, message.ended) == (None, False)
    client.conn.increment_flow_control_window(100, stream_id)
    client.flush()
    rig.until(lambda: message.over)
    assert message.summary() == (200, b"0123456789abcdef", {b"grpc-status": b"0"}, True, None)
    assert rig.count(Counter.GRPC_OK) == 1


def test_large_bodies_both_ways(rig: Rig, backend: Backend, journey: Journey) -> None:
    body = bytes(range(256)) * 4096 * 3  # 3 MiB: above every window
    stream_id = journey.client.send(POST, end=False)
    peer, at, asked = backend.request()
    left = body

    def feed(sender: Peer, stream: int) -> bool:
        nonlocal left
        room = min(sender.room(stream), 65536)
        if left and room > 0:
            sender.data(stream, left[:room], end=room >= len(left))
            left = left[room:]
        return not left

    rig.until(lambda: feed(journey.client, stream_id) and asked.ended)
    assert asked.body == body
    peer.head(at, [(b":status", b"200")])
    left = body
    message = journey.client.message(stream_id)
    rig.until(lambda: feed(peer, at) and message.ended)
    assert message.body == body


# ------------------------------------------------------------------------------------ replay


@pytest.mark.parametrize("size", [0, 5, 60_000])
def test_refused_stream_goes_to_the_other_endpoint(rig: Rig, size: int) -> None:
    first, second = Backend(rig), Backend(rig)
    journey = Journey(rig, first, second)
    journey.warm()
    body = b"x" * size
    stream_id = journey.client.send(POST, body or None)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: asked.ended)
    peer.rst(at, REFUSED)
    peer, at, asked = other.request()
    rig.until(lambda: asked.ended)
    assert asked.body == body
    peer.reply(at)
    assert journey.over(stream_id).summary() == (200, b"ok", None, True, None)
    assert rig.count(Counter.RETRIED) == 1
    assert len(refusing.requests()) == 1


def test_credit_is_given_once_however_often_the_body_is_sent(rig: Rig) -> None:
    """The window of the client's stream never rises above what it began with."""
    first, second = Backend(rig), Backend(rig)
    rig.limits = config.Http2(initial_stream_window=50_000, max_stream_window=50_000)
    journey = Journey(rig, first, second)
    journey.warm()
    stream_id = journey.client.send(POST, b"x" * 40_000, end=False)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: len(asked.body) == 40_000)
    peer.rst(at, REFUSED)
    peer, at, asked = other.request()
    rig.until(lambda: len(asked.body) == 40_000)
    rig.settle()
    assert journey.client.room(stream_id) <= 50_000
    journey.client.data(stream_id, b"y" * 10_000, end=True)
    rig.until(lambda: asked.ended)
    assert asked.body == b"x" * 40_000 + b"y" * 10_000
    peer.reply(at)
    journey.over(stream_id)


def test_what_comes_while_the_request_waits_is_sent_later(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    backend.accepting = False  # SETTINGS don't come, but the dial succeeds: nothing is sent yet
    stream_id = journey.client.send(POST, b"a" * 1000, end=False)
    journey.client.data(stream_id, b"b" * 1000)
    journey.client.head(stream_id, [(b"x-sum", b"1")], end=True)
    journey.rig.settle()
    backend.accepting = True
    peer, at, asked = backend.request()
    rig.until(lambda: asked.ended)
    assert asked.body == b"a" * 1000 + b"b" * 1000
    assert asked.trailers == {b"x-sum": b"1"}
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_a_body_above_the_limit_is_not_sent_again(rig: Rig) -> None:
    first, second = Backend(rig), Backend(rig)
    journey = Journey(rig, first, second)
    journey.warm()
    size = REPLAY_LIMIT + 1
    stream_id = journey.client.send(POST, b"x" * 60_000, end=False)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: journey.client.room(stream_id) >= size - 60_000)
    journey.client.data(stream_id, b"x" * (size - 60_000))
    rig.until(lambda: len(asked.body) == size)
    peer.rst(at, REFUSED)
    message = journey.over(stream_id)
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"upstream_refused")
    assert other.requests() == []
    assert rig.count(Counter.RETRIED) == 0


def test_a_burst_on_a_new_connection_keeps_the_peer_s_limit(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 2})
    journey = Journey(rig, backend, max_connections=1)
    streams = [journey.client.send(POST, b"%d" % i) for i in range(6)]

    def answer() -> bool:
        for peer, at in backend.requests():
            message = peer.messages[at]
            if message.ended and peer.closed is None and not message.trailers:
                message.trailers = {b"answered": b""}
                peer.reply(at, message.body)
        return all(journey.client.message(s).over for s in streams)

    rig.until(answer)
    assert [journey.client.message(s).body for s in streams] == [b"%d" % i for i in range(6)]


def test_refused_by_the_only_endpoint(rig: Rig, backend: Backend, journey: Journey) -> None:
    """It may take the next one: it said so of this stream, not of the connection."""
    stream_id = journey.client.send(POST, b"a")
    peer, at, _ = backend.request()
    peer.rst(at, REFUSED)
    peer, at, asked = backend.request(1)
    rig.until(lambda: asked.ended)
    assert asked.body == b"a"
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_a_request_is_not_tried_for_ever(rig: Rig) -> None:
    backends = [Backend(rig) for _ in range(4)]
    journey = Journey(rig, *backends, max_retries=2)
    journey.warm()
    stream_id = journey.client.send(POST)

    def refuse() -> bool:
        for backend in backends:
            for peer, at in backend.requests():
                if at in peer.messages and peer.messages[at].reset is None:
                    peer.messages[at].reset = REFUSED
                    peer.rst(at, REFUSED)
        return journey.client.message(stream_id).over

    rig.until(refuse)
    assert journey.over(stream_id).status == 503
    assert sum(len(backend.requests()) for backend in backends) == 3


def test_streams_above_the_last_of_a_goaway_are_sent_again(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    journey.warm()
    streams = [journey.client.send(POST, b"%d" % i) for i in range(4)]
    rig.until(lambda: len(backend.requests()) == 4)
    (peer,) = backend.peers
    rig.until(lambda: all(m.ended for m in peer.messages.values()))
    taken = peer.order[:2]
    peer.raw(goaway(2**31 - 1))
    rig.settle()
    peer.raw(goaway(taken[-1]))
    rig.until(lambda: len(backend.requests()) == 6, "the two above on another connection")
    other = backend.peers[1]
    rig.until(lambda: all(m.ended for m in other.messages.values()))
    assert sorted(m.body for m in other.messages.values()) == [b"2", b"3"]
    for stream_id in taken:
        peer.reply(stream_id, b"old")
    for stream_id in other.order:
        other.reply(stream_id, b"new")
    for stream_id in streams:
        journey.over(stream_id)
    assert [journey.client.messages[s].body for s in streams] == [b"old", b"old", b"new", b"new"]
    rig.until(lambda: peer.closed, "the connection that was told to go is closed")
    assert rig.count(Counter.UPSTREAM_CLOSED_GOAWAY) == 1
    assert rig.count(Counter.RETRIED) == 2


def test_a_response_that_began_is_not_tried_again(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    stream_id = journey.client.send(request())
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"200")])
    rig.until(lambda: journey.client.message(stream_id).status)
    peer.rst(at, REFUSED)
    message = journey.over(stream_id)
    assert (message.status, message.ended) == (200, False)
    assert message.reset not in (None, REFUSED)
    assert len(backend.requests()) == 1


# ------------------------------------------------------------------- endpoints that are down


def test_a_failed_dial_sends_the_request_elsewhere(rig: Rig, backend: Backend) -> None:
    down = Backend(rig)
    down.close()
    journey = Journey(rig, down, backend, backoff_base_s=1000.0)
    streams = [journey.client.send(POST, b"x") for _ in range(2)]
    for number in range(2):
        peer, at, asked = backend.request(number)
        rig.settle()
        assert (asked.body, asked.ended) == (b"x", True)
        peer.reply(at)
    assert [journey.over(s).status for s in streams] == [200, 200]
    assert rig.count(Counter.RETRIED) == 1
    assert rig.count(Counter.PENDING) == 0


def test_all_endpoints_are_down(rig: Rig) -> None:
    down = [Backend(rig) for _ in range(2)]
    for backend in down:
        backend.close()
    journey = Journey(rig, *down, backoff_base_s=1000.0, backoff_max_s=1000.0)
    message = journey.over(journey.client.send(POST, b"x"))
    # Both were tried for this one: it is told of the last connect.
    assert (message.status, message.fields[b"x-gateway-error"]) == (502, b"connect_failed")
    # They are known to be down for this one.
    message = journey.over(journey.client.send(POST, b"x"))
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"no_endpoint")
    assert message.body.startswith(b"no_endpoint: no endpoint of cluster c is available")
    assert b"last error: " + down[0].address.encode() + b": Connection refused" in message.body
    message = journey.over(journey.client.send(GRPC, b"x"))
    assert message.fields[b"grpc-status"] == b"14"


def test_an_endpoint_that_is_back_within_the_wait(rig: Rig) -> None:
    """A request waits for the next dial when that comes within ``pending_timeout``."""
    down = Backend(rig)
    down.close()
    journey = Journey(rig, down, backoff_base_s=0.2, backoff_max_s=0.2, pending_timeout_s=60.0)
    message = journey.over(journey.client.send(POST, b"x"))
    assert message.status == 502
    back = Backend(rig, down.port)
    stream_id = journey.client.send(POST, b"x")
    peer, at, _ = back.request()
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_the_queue_is_full(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 1})
    journey = Journey(rig, backend, max_connections=1, max_pending=1)
    journey.warm()
    streams = [journey.client.send(POST, b"x") for _ in range(3)]
    message = journey.over(streams[2])
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"overloaded")
    assert b"clusters.c.max_pending" in message.body
    for number in range(2):
        peer, at, _ = backend.request(number)
        peer.reply(at)
        assert journey.over(streams[number]).status == 200


@pytest.mark.parametrize("route", [{}, {"connect_timeout_s": 2.0}])
def test_the_wait_is_over(rig: Rig, route: dict) -> None:
    backend = Backend(rig, settings={3: 1})
    journey = Journey(
        rig,
        backend,
        max_connections=1,
        pending_timeout_s=20.0,
        keepalive_interval_s=None,
        route=route,
    )
    journey.warm()
    first, second = (journey.client.send(POST, b"x") for _ in range(2))
    rig.until(lambda: rig.count(Counter.PENDING) == 1)
    rig.sweep(1.5)
    assert rig.count(Counter.PENDING) == 1
    rig.sweep(2.5 if route else 19.0)
    assert rig.count(Counter.PENDING) == (0 if route else 1)
    rig.sweep(21.0)
    message = journey.over(second)
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"pending_timeout")
    peer, at, _ = backend.request()
    peer.reply(at)
    assert journey.over(first).status == 200


def test_removed_endpoints_hand_their_waiters_to_one_that_stays(rig: Rig, backend: Backend) -> None:
    with contextlib.ExitStack() as stack:
        holes = [stack.enter_context(blackhole()) for _ in range(5)]
        journey = Journey(rig, backend)
        stays = config.ClusterEndpoint(address=backend.address)
        gone = [config.ClusterEndpoint(address=hole) for hole in holes]
        journey.cluster.update([*gone, stays])
        rig.resolve(journey.cluster)
        journey.warm()
        streams = [journey.client.send(POST, b"x") for _ in range(6)]
        rig.until(lambda: backend.requests() and rig.count(Counter.PENDING) == 5)
        journey.cluster.update([stays])
        for number in range(6):
            peer, at, _ = backend.request(number)
            peer.reply(at)
        assert [journey.over(s).status for s in streams] == [200] * 6


def test_streams_finish_on_a_removed_endpoint(rig: Rig, backend: Backend) -> None:
    other = Backend(rig)
    journey = Journey(rig, backend)
    old = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    journey.cluster.update([config.ClusterEndpoint(address=other.address)])
    rig.resolve(journey.cluster)
    new = journey.client.send(POST, b"b")
    other_peer, other_at, _ = other.request()
    other_peer.reply(other_at, b"new")
    assert journey.over(new).body == b"new"
    journey.client.data(old, b"c", end=True)
    rig.until(lambda: asked.ended)
    assert asked.body == b"ac"
    peer.reply(at, b"old")
    assert journey.over(old).body == b"old"
    rig.until(lambda: peer.closed)


def test_the_process_holds_too_much(rig: Rig, backend: Backend, journey: Journey) -> None:
    rig.budget.total += rig.budget.limit + 1
    message = journey.over(journey.client.send(POST, b"x"))
    rig.budget.total -= rig.budget.limit + 1
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"overloaded")
    assert rig.count(Counter.PROCESS_BUFFER_LIMIT) == 1
    assert backend.requests() == []


# ---------------------------------------------------------------------------- cancel, half-close


def test_a_cancel_of_the_client_reaches_the_endpoint(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    _, _, asked = backend.request()
    journey.client.rst(stream_id, CANCEL)
    rig.until(lambda: asked.reset is not None)
    assert asked.reset == CANCEL
    assert rig.count(Counter.CANCELLED_BY_CLIENT) == 1
    assert rig.gauges() == {"transports_open": 2, "upstream_connections_open": 1}


def test_a_lost_client_cancels_all_its_requests(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    for _ in range(3):
        journey.client.send(POST, b"a", end=False)
    rig.until(lambda: len(backend.requests()) == 3)
    journey.client.close()
    (peer,) = backend.peers
    rig.until(lambda: all(m.reset == CANCEL for m in peer.messages.values()))
    assert peer.closed is None
    assert rig.count(FAILURES[Kind.CLIENT_CANCELLED]) == 3


def test_a_cancel_while_the_request_waits(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 1})  # MAX_CONCURRENT_STREAMS
    journey = Journey(rig, backend, max_connections=1)
    journey.warm()
    first = journey.client.send(request())
    peer, at, _ = backend.request()
    second = journey.client.send(POST, b"x", end=False)
    rig.until(lambda: rig.count(Counter.PENDING) == 1)
    journey.client.rst(second, CANCEL)
    rig.until(lambda: rig.count(Counter.PENDING) == 0)
    third = journey.client.send(request())
    peer.reply(at)
    journey.over(first)
    peer, at, _ = backend.request(1)
    peer.reply(at)
    assert journey.over(third).status == 200
    assert len(backend.requests()) == 2


def test_both_cancel_in_the_same_turn(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.rst(at, CANCEL)
    journey.client.rst(stream_id, CANCEL)
    rig.until(lambda: rig.count(Counter.EXCHANGES_OPEN) == 0)
    rig.settle()
    assert journey.client.closed is None
    assert peer.closed is None


def test_end_of_both_in_the_same_turn(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.reply(at)
    journey.client.data(stream_id, b"b", end=True)
    message = journey.over(stream_id)
    assert (message.status, message.body, message.ended) == (200, b"ok", True)


def test_the_client_ends_first(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, b"a")
    peer, at, asked = backend.request()
    rig.until(lambda: asked.ended)
    peer.head(at, [(b":status", b"200")])
    message = journey.client.message(stream_id)
    for piece in (b"1", b"2", b"3"):
        peer.data(at, piece)
        rig.settle()
        assert message.body.endswith(piece), "passed on at once"
    peer.data(at, b"", end=True)
    assert journey.over(stream_id).summary() == (200, b"123", None, True, None)


def test_the_endpoint_ends_first_and_takes_the_rest(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    """Without RST_STREAM from the endpoint the client may go on (RFC 9113 section 8.1)."""
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    peer.reply(at)
    message = journey.client.message(stream_id)
    rig.until(lambda: message.ended)
    rig.settle()
    assert message.reset is None
    journey.client.data(stream_id, b"b", end=True)
    rig.until(lambda: rig.count(Counter.EXCHANGES_OPEN) == 0)
    rig.until(lambda: asked.ended)
    assert asked.body == b"ab"


def test_the_endpoint_ends_first_and_wants_no_more(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.reply(at, b"enough")
    peer.rst(at, NO_ERROR)
    message = journey.client.message(stream_id)
    rig.until(lambda: message.reset is not None)
    assert message.summary() == (200, b"enough", None, True, NO_ERROR)
    rig.until(lambda: rig.count(Counter.EXCHANGES_OPEN) == 0)


def test_the_endpoint_wants_no_more_while_its_response_waits(rig: Rig, backend: Backend) -> None:
    """NO_ERROR must not overtake the part of the response that the client has no window for."""
    journey = Journey(rig, backend)
    client = rig.connect(journey.site, settings={4: 4})
    client.crediting = False
    stream_id = client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.reply(at, b"12345678")
    peer.rst(at, NO_ERROR)
    message = client.message(stream_id)
    rig.until(lambda: message.body == b"1234")
    rig.settle()
    assert message.reset is None
    client.conn.increment_flow_control_window(100, stream_id)
    client.flush()
    rig.until(lambda: message.reset is not None)
    assert message.summary() == (200, b"12345678", None, True, NO_ERROR)


def test_a_cancel_after_the_endpoint_ended(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    peer.reply(at)
    rig.until(lambda: journey.client.message(stream_id).ended)
    journey.client.rst(stream_id, CANCEL)
    rig.until(lambda: asked.reset is not None)
    assert asked.reset == CANCEL


def test_the_connection_is_lost_after_the_whole_response(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.reply(at, b"enough")
    message = journey.client.message(stream_id)
    rig.until(lambda: message.ended)
    peer.close()
    rig.until(lambda: message.reset is not None)
    assert message.reset == NO_ERROR


# ---------------------------------------------------------------------------------- failures


def test_an_endpoint_that_dies_before_the_head(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    plain = journey.client.send(POST, b"a")
    grpc = journey.client.send(GRPC, b"a")
    rig.until(lambda: len(backend.requests()) == 2)
    backend.close(abort=True)
    message = journey.over(plain)
    assert (message.status, message.fields[b"x-gateway-error"]) == (502, b"upstream_closed")
    assert message.body.startswith(b"upstream_closed: ")
    message = journey.over(grpc)
    assert (message.status, message.fields[b"grpc-status"]) == (200, b"14")
    assert backend.address.encode() in message.fields[b"grpc-message"]


def test_an_endpoint_that_dies_in_the_middle(rig: Rig, backend: Backend, journey: Journey) -> None:
    plain = journey.client.send(POST, b"a")
    grpc = journey.client.send(GRPC, b"a")
    rig.until(lambda: len(backend.requests()) == 2)
    for peer, at in backend.requests():
        peer.head(at, GRPC_OK)
        peer.data(at, b"part")
    rig.until(lambda: all(journey.client.message(s).body == b"part" for s in (plain, grpc)))
    backend.close(abort=True)
    message = journey.over(plain)
    assert message.summary() == (200, b"part", None, False, INTERNAL)
    message = journey.over(grpc)
    assert message.ended
    assert message.trailers is not None
    assert message.trailers[b"grpc-status"] == b"14"
    assert message.trailers[b"x-gateway-error"] == b"upstream_closed"
    assert rig.count(Counter.RESET_BY_UPSTREAM) == 2


def test_grpc_trailers_of_a_failure_come_after_pending_data(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    client = rig.connect(journey.site, settings={4: 4})
    client.crediting = False
    stream_id = client.send(GRPC, b"a")
    peer, at, _ = backend.request()
    peer.head(at, GRPC_OK)
    peer.data(at, b"12345678")
    message = client.message(stream_id)
    rig.until(lambda: message.body == b"1234")
    backend.close(abort=True)
    rig.settle()
    client.conn.increment_flow_control_window(100, stream_id)
    client.flush()
    rig.until(lambda: message.over)
    assert message.body == b"12345678"
    assert message.trailers is not None
    assert message.trailers[b"grpc-status"] == b"14"


def test_a_reset_of_the_endpoint(rig: Rig, backend: Backend, journey: Journey) -> None:
    plain = journey.client.send(request())
    peer, at, _ = backend.request()
    peer.rst(at, INTERNAL)
    message = journey.over(plain)
    assert (message.status, message.fields[b"x-gateway-error"]) == (502, b"upstream_reset")
    grpc = journey.client.send(GRPC, b"")
    peer, at, _ = backend.request(1)
    peer.rst(at, CANCEL)
    message = journey.over(grpc)
    assert message.fields[b"grpc-status"] == b"1"  # CANCELLED, by gRPC's map of HTTP/2 codes


def test_a_failed_request_whose_body_still_comes_is_told_to_stop(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, _ = backend.request()
    peer.rst(at, INTERNAL)
    message = journey.client.message(stream_id)
    rig.until(lambda: message.reset is not None)
    assert (message.status, message.ended, message.reset) == (502, True, NO_ERROR)


def test_no_route(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"match": config.Match(path_prefix="/here")})
    plain = journey.over(journey.client.send(request(b"GET", b"/there?secret")))
    assert (plain.status, plain.fields[b"x-gateway-error"]) == (404, b"no_route")
    assert b"secret" not in plain.body
    grpc = journey.over(journey.client.send(GRPC, b""))
    assert (grpc.status, grpc.fields[b"grpc-status"]) == (200, b"12")
    connect = journey.over(
        journey.client.send([(b":method", b"CONNECT"), (b":authority", b"a:1")], end=False)
    )
    assert connect.status == 501


# ------------------------------------------------------------------------------ limits, times


def test_a_body_too_large_by_its_content_length(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"max_request_body": 10})
    stream_id = journey.client.send(request(b"POST", b"/", (b"content-length", b"11")), end=False)
    message = journey.client.message(stream_id)
    rig.until(lambda: message.reset is not None)
    assert (message.status, message.reset) == (413, NO_ERROR)
    assert message.fields[b"x-gateway-error"] == b"request_too_large"
    assert backend.requests() == []


def test_a_body_too_large_by_what_comes(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"max_request_body": 10})
    stream_id = journey.client.send(POST, b"0123456789", end=False)
    _, _, asked = backend.request()
    rig.until(lambda: asked.body == b"0123456789")
    journey.client.data(stream_id, b"x")
    message = journey.client.message(stream_id)
    rig.until(lambda: message.reset is not None)
    assert (message.status, message.reset) == (413, NO_ERROR)
    rig.until(lambda: asked.reset == CANCEL)
    assert asked.body == b"0123456789"
    grpc = journey.client.send(GRPC, b"x" * 11)
    assert journey.over(grpc).fields[b"grpc-status"] == b"8"


def test_the_timeout_of_the_route(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"timeout_s": 60.0})
    plain = journey.client.send(request())
    grpc = journey.client.send(GRPC, b"")
    begun = journey.client.send(request())
    peer, at, _ = backend.request(2)
    peer.head(at, [(b":status", b"200")])
    rig.until(lambda: journey.client.message(begun).status)
    rig.sweep(59.0)
    rig.settle()
    assert not any(journey.client.message(s).over for s in (plain, grpc, begun))
    rig.sweep(61.0)
    message = journey.over(plain)
    assert (message.status, message.fields[b"x-gateway-error"]) == (504, b"request_timeout")
    assert journey.over(grpc).fields[b"grpc-status"] == b"4"
    assert journey.over(begun).reset == CANCEL
    rig.until(lambda: all(m.reset == CANCEL for m in peer.messages.values()))


def test_idle_timeout_counts_bytes_of_both_directions(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"idle_timeout_s": 100.0}, keepalive_interval_s=None)
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    peer.head(at, [(b":status", b"200")])
    message = journey.client.message(stream_id)
    rig.until(lambda: message.status)
    started = rig.reactor.now
    # Bytes move either way later than the head: the time counts from them.
    journey.client.data(stream_id, b"b")
    rig.until(lambda: asked.body == b"ab")
    up = rig.reactor.now
    rig.sweep(started + 100.0 - rig.reactor.now - 1e-6)
    rig.settle()
    assert message.reset is None
    peer.data(at, b"c")
    rig.until(lambda: message.body == b"c")
    rig.sweep(up + 100.0 - rig.reactor.now)
    rig.settle()
    assert message.reset is None
    rig.sweep(100.0)
    assert journey.over(stream_id).reset == CANCEL
    rig.until(lambda: asked.reset == CANCEL)
    assert rig.count(FAILURES[Kind.IDLE_TIMEOUT]) == 1


def test_idle_timeout_before_the_head(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend, route={"idle_timeout_s": 100.0})
    plain = journey.client.send(request())
    grpc = journey.client.send(GRPC, b"")
    rig.until(lambda: len(backend.requests()) == 2)
    rig.sweep(101.0)
    assert journey.over(plain).status == 504
    assert journey.over(grpc).fields[b"grpc-status"] == b"14"


def test_grpc_timeout_is_passed_on_reduced(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send([*GRPC, (b"grpc-timeout", b"30S")], b"")
    peer, at, asked = backend.request()
    left = parse_timeout(asked.fields[b"grpc-timeout"])
    assert left is not None
    assert 0.0 < left < 30.0
    rig.sweep(29.0)
    rig.settle()
    assert not journey.client.message(stream_id).over
    rig.sweep(30.0)
    message = journey.over(stream_id)
    assert (message.status, message.fields[b"grpc-status"]) == (200, b"4")
    rig.until(lambda: peer.messages[at].reset == CANCEL)


def test_grpc_timeout_is_cut_to_the_timeout_of_the_route(rig: Rig, backend: Backend) -> None:
    """The route's timeout ends the request first: the endpoint need not work any longer."""
    journey = Journey(rig, backend, route={"timeout_s": 5.0})
    stream_id = journey.client.send([*GRPC, (b"grpc-timeout", b"30S")], b"")
    peer, at, asked = backend.request()
    assert b"grpc-timeout" in asked.fields
    left = parse_timeout(asked.fields[b"grpc-timeout"])
    assert left is not None
    assert 0.0 < left <= 5.0
    peer.head(at, [*GRPC_OK, *OK_TRAILERS], end=True)
    assert journey.over(stream_id).fields[b"grpc-status"] == b"0"


def test_grpc_timeout_passes_while_the_request_waits(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 1})
    journey = Journey(rig, backend, max_connections=1, pending_timeout_s=1000.0)
    journey.warm()
    first = journey.client.send(request())
    peer, at, _ = backend.request()
    second = journey.client.send([*GRPC, (b"grpc-timeout", b"30S")], b"")
    rig.until(lambda: rig.count(Counter.PENDING) == 1)
    rig.sweep(30.0)
    assert journey.over(second).fields[b"grpc-status"] == b"4"
    assert rig.count(Counter.PENDING) == 0
    peer.reply(at)
    assert journey.over(first).status == 200


def test_credit_follows_the_slower_side(rig: Rig, backend: Backend) -> None:
    """A client that does not read holds no more than one window of its response."""
    rig.limits = config.Http2(initial_stream_window=65_536, max_stream_window=65_536)
    journey = Journey(rig, backend)
    client = rig.connect(journey.site, settings={4: 1000})
    client.crediting = False
    stream_id = client.send(request())
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"200")])
    rig.settle()
    peer.data(at, b"x" * peer.room(at))
    message = client.message(stream_id)
    rig.until(lambda: len(message.body) == 1000)
    rig.settle()
    assert peer.room(at) == 0
    assert rig.budget.total >= 60_000
    client.conn.increment_flow_control_window(40_000, stream_id)
    client.flush()
    rig.until(lambda: len(message.body) == 41_000)
    rig.until(lambda: peer.room(at) >= 32_768)
    client.rst(stream_id, CANCEL)
    rig.until(lambda: rig.budget.total == 0)
