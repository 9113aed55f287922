"""The end of an exchange: cancelled by either side, or ended by one before the other."""

from __future__ import annotations

from functools import partial

import pytest

from gateway.errors import Kind
from gateway.telemetry import FAILURES, Counter
from tests.proxy.journey import POST, Journey
from tests.rig import (
    CANCEL,
    NO_ERROR,
    Backend,
    Rig,
    request,
)


@pytest.fixture
def journey(rig: Rig, backend: Backend) -> Journey:
    return Journey(rig, backend)


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
        rig.until(partial(message.body_ends, piece), "passed on at once")
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


def test_a_client_that_never_ends_its_request_is_stopped(rig: Rig, backend: Backend) -> None:
    """The response is whole long since; the idle timeout ends what is left on both sides."""
    journey = Journey(rig, backend, route={"idle_timeout_s": 100.0}, keepalive_interval_s=None)
    stream_id = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    peer.reply(at)
    message = journey.client.message(stream_id)
    rig.until(lambda: message.ended)
    rig.settle()
    assert message.reset is None
    rig.sweep(101.0)
    rig.until(lambda: message.reset is not None)
    assert message.summary() == (200, b"ok", None, True, NO_ERROR)
    rig.until(lambda: asked.reset is not None)
    rig.until(lambda: rig.count(Counter.EXCHANGES_OPEN) == 0)


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
