"""The server side of a client's connection: its requests, its idleness, its end."""

from __future__ import annotations

import hpack
import pytest

from gateway import config
from gateway.errors import Kind
from gateway.proxy.downstream import Site
from gateway.telemetry import FAILURES, Counter
from tests.rig import GRPC, NO_ERROR, Backend, Peer, Rig, request


def field(name: bytes, value: bytes) -> bytes:
    """A literal without indexing (RFC 7541 section 6.2.2); no Huffman, lengths below 127."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(stream_id: int, *fields: tuple[bytes, bytes], end: bool = True) -> bytes:
    """A HEADERS frame by hand: what the library would refuse to send."""
    block = b"".join(field(*one) for one in fields)
    head = len(block).to_bytes(3, "big") + bytes([1, 0x4 | (0x1 if end else 0)])
    return head + stream_id.to_bytes(4, "big") + block


@pytest.fixture
def site(rig: Rig, backend: Backend) -> Site:
    return rig.site(rig.cluster(backend.address))


def test_requests_of_one_connection_are_apart(rig: Rig, backend: Backend, site: Site) -> None:
    client = rig.connect(site)
    streams = [client.send(request(b"GET", b"/%d" % i)) for i in range(5)]
    rig.until(lambda: len(backend.requests()) == 5)
    assert rig.count(Counter.DOWNSTREAM_STREAMS_OPEN) == 5
    for peer, at in reversed(backend.requests()):
        peer.reply(at, peer.messages[at].fields[b":path"])
    rig.until(lambda: all(client.message(s).over for s in streams))
    assert [client.message(s).body for s in streams] == [b"/0", b"/1", b"/2", b"/3", b"/4"]
    assert rig.count(Counter.DOWNSTREAM_STREAMS_OPEN) == 0


def test_equal_heads_share_a_plan_and_not_an_id(rig: Rig, backend: Backend, site: Site) -> None:
    client = rig.connect(site)
    for _ in range(4):
        client.send(GRPC, b"")
    rig.until(lambda: len(backend.requests()) == 4)
    (peer,) = backend.peers
    heads = [peer.messages[at].fields for at in peer.order]
    assert len({head.pop(b"x-request-id") for head in heads}) == 4
    assert heads[1:] == heads[:1] * 3


def test_clients_are_told_apart(rig: Rig, backend: Backend, site: Site) -> None:
    for address in (b"192.0.2.1", b"2001:db8::1", b""):
        client = rig.connect(site, client=address)
        client.send(request(b"GET", b"/" + address))
    rig.until(lambda: len(backend.requests()) == 3)
    (peer,) = backend.peers
    seen = {m.fields[b":path"]: m.fields.get(b"x-forwarded-for") for m in peer.messages.values()}
    assert seen == {
        b"/192.0.2.1": b"192.0.2.1",
        b"/2001:db8::1": b"2001:db8::1",
        b"/": None,
    }


def test_routes_are_chosen_per_request(rig: Rig) -> None:
    backends = {name: Backend(rig) for name in ("one", "two")}
    clusters = [rig.cluster(b.address, name=name) for name, b in backends.items()]
    site = rig.site(
        *clusters,
        routes=[
            config.Route(match=config.Match(path_prefix="/one/"), cluster="one"),
            config.Route(cluster="two"),
        ],
    )
    client = rig.connect(site)
    client.send(request(b"GET", b"/one/a"))
    client.send(request(b"GET", b"/b"))
    for name, path in (("one", b"/one/a"), ("two", b"/b")):
        _, _, asked = backends[name].request()
        assert asked.fields[b":path"] == path


def test_a_plan_is_of_its_site(rig: Rig, backend: Backend, site: Site) -> None:
    """Another site (a reload) does not go by the plan that a head remembers."""
    other = rig.site(*site.clusters.values(), routes=[])
    client = rig.connect(other)
    stream_id = client.send(request())
    rig.until(lambda: client.message(stream_id).over)
    assert client.message(stream_id).status == 404


def test_a_malformed_request_is_answered_and_reset(rig: Rig, backend: Backend, site: Site) -> None:
    client = rig.connect(site)
    client.conn.send_headers(1, request())  # so that the library knows the stream
    client.conn.clear_outbound_data_buffer()
    client.conn.encoder = hpack.Encoder()  # what it would have sent is in its table
    client.raw(headers(1, (b":method", b"GET"), (b":path", b"/"), (b"Upper", b"case")))
    message = client.message(1)
    rig.until(lambda: message.reset is not None)
    assert (message.status, message.reset) == (400, 1)
    assert message.fields[b"x-gateway-error"] == b"malformed_request"
    assert rig.count(FAILURES[Kind.MALFORMED_REQUEST]) == 1
    assert rig.count(Counter.RESPONSES_4XX) == 1
    # The connection goes on.
    stream_id = client.send(request())
    peer, at, _ = backend.request()
    peer.reply(at)
    rig.until(lambda: client.message(stream_id).over)
    assert client.message(stream_id).status == 200


@pytest.mark.parametrize("end", [True, False])
def test_fields_too_large(rig: Rig, backend: Backend, site: Site, end: bool) -> None:
    client = rig.connect(site)
    stream_id = client.send(
        request(b"POST", b"/", *((b"x-%d" % i, b"a" * 800) for i in range(100))), end=end
    )
    message = client.message(stream_id)
    rig.until(lambda: message.over if end else message.reset is not None)
    assert message.status == 431
    assert message.fields[b"x-gateway-error"] == b"headers_too_large"
    assert message.reset == (None if end else NO_ERROR)
    assert rig.count(Counter.HEADER_LIST_TOO_LARGE) == 1
    assert backend.requests() == []


# ---------------------------------------------------------------------------------- idleness


def gone(rig: Rig, client: Peer) -> None:
    """Wait until the connection has ended, gracefully."""
    rig.until(lambda: client.closed == "closed")
    assert client.goaways[0] == (2**31 - 1, 0)
    assert client.goaways[-1][1] == 0


def test_an_idle_connection_is_closed(rig: Rig, site: Site) -> None:
    client = rig.connect(site, idle_timeout_s=100.0)
    assert len(site.connections) == 1
    rig.sweep(99.0)
    rig.settle()
    assert client.goaways == []
    rig.sweep(101.0)
    gone(rig, client)
    assert client.goaways == [(2**31 - 1, 0), (0, 0)]
    rig.until(lambda: rig.released == 1)
    assert site.connections == set()


def test_idleness_begins_with_the_last_stream_s_end(rig: Rig, backend: Backend, site: Site) -> None:
    client = rig.connect(site, idle_timeout_s=100.0)
    begun = rig.reactor.now
    stream_id = client.send(request())
    peer, at, _ = backend.request()
    rig.sweep(200.0)
    rig.settle()
    assert client.goaways == []
    peer.reply(at)
    rig.until(lambda: client.message(stream_id).over)
    ended = rig.reactor.now
    rig.sweep((begun + ended) / 2 + 100.0 - rig.reactor.now)
    rig.settle()
    assert client.goaways == []
    rig.sweep(101.0)
    gone(rig, client)


def test_without_idle_timeout(rig: Rig, site: Site) -> None:
    client = rig.connect(site, idle_timeout_s=None)
    rig.sweep(1e6)
    rig.settle()
    assert client.goaways == []
    assert client.closed is None


# --------------------------------------------------------------------------------------- end


def test_drain_finishes_what_is_open(rig: Rig, backend: Backend, site: Site) -> None:
    busy, idle = rig.connect(site), rig.connect(site)
    stream_id = busy.send(request())
    peer, at, _ = backend.request()
    site.drain()
    assert site.draining
    gone(rig, idle)
    rig.settle()
    assert busy.goaways == [(2**31 - 1, 0), (stream_id, 0)]
    assert busy.closed is None
    peer.reply(at, b"late")
    rig.until(lambda: busy.closed == "closed")
    assert busy.message(stream_id).body == b"late"
    rig.until(lambda: not site.connections)


def test_drain_takes_what_was_under_way(rig: Rig, backend: Backend, site: Site) -> None:
    """Requests that crossed the first GOAWAY are served (RFC 9113 section 6.8)."""
    client = rig.connect(site)
    client.send(request())
    backend.request()
    site.drain()
    rig.reactor.turn(0.0)  # the first GOAWAY is written; the client has not read it
    client.send(request(b"GET", b"/crossed"))
    _, _, asked = backend.request(1)
    assert asked.fields[b":path"] == b"/crossed"
    rig.until(lambda: len(client.goaways) == 2)
    assert client.goaways[1] == (3, 0)
    for peer, at in backend.requests():
        peer.reply(at)
    rig.until(lambda: client.closed == "closed")
    assert [m.status for m in client.messages.values()] == [200, 200]


def test_a_drained_client_that_answers_nothing(rig: Rig, site: Site) -> None:
    """The second GOAWAY follows after a second, with or without the answer to the PING."""
    client = rig.connect(site)
    client.reading = False
    site.drain()
    rig.settle()
    rig.sweep(1.1)
    rig.settle()
    client.reading = True
    gone(rig, client)


def test_a_connection_that_breaks_the_protocol_is_told_why(
    rig: Rig, backend: Backend, site: Site
) -> None:
    client = rig.connect(site)
    client.send(request())
    _, _, asked = backend.request()
    client.raw(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0")  # WINDOW_UPDATE of 0
    rig.until(lambda: client.closed == "closed")
    assert client.goaways == [(1, 1)]
    rig.until(lambda: asked.reset is not None)
    assert rig.count(Counter.PROTOCOL_ERROR) == 1


def test_a_lost_connection_is_released_once(rig: Rig, site: Site) -> None:
    client = rig.connect(site)
    client.close()
    rig.until(lambda: not site.connections)
    rig.settle()
    assert rig.released == 1


def test_request_ids_of_a_site_are_unique(rig: Rig, site: Site) -> None:
    other = rig.site(*site.clusters.values())
    fields = [s.request_id_field() for s in (site, other) for _ in range(300)]
    assert {name for name, _ in fields} == {b"x-request-id"}
    ids = {value for _, value in fields}
    assert len(ids) == 600
    assert all(len(value) == 32 and int(value, 16) >= 0 for value in ids)
