"""One request's life between a client and endpoints that are spoken by the ``h2`` library."""

from __future__ import annotations

import pytest

from gateway import config
from gateway.errors import Kind
from gateway.telemetry import FAILURES, Counter
from gateway.wire.grpc import parse_timeout
from tests.proxy.journey import POST, Journey
from tests.rig import (
    CANCEL,
    GRPC,
    GRPC_OK,
    INTERNAL,
    NO_ERROR,
    OK_TRAILERS,
    Backend,
    Peer,
    Rig,
    request,
)


@pytest.fixture
def journey(rig: Rig, backend: Backend) -> Journey:
    return Journey(rig, backend)


# ----------------------------------------------------------------------------------- whole


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
    # What has ended needs no RST_STREAM; a server that gets a thousand of them closes.
    rig.settle()
    assert asked.reset is None


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


# -------------------------------------------------------------------------------- failures


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


# --------------------------------------------------------------------------- limits, times


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
    rig.settle()
    assert peer.room(at) <= 41_000
    client.rst(stream_id, CANCEL)
    rig.until(lambda: rig.budget.total == 0)
