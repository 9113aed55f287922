"""Compressed responses between a client and an endpoint that are spoken by the ``h2`` library."""

from __future__ import annotations

import gzip
import random
import zlib

import h2.settings
import pytest

from gateway import config
from gateway.head import Fields, RequestHead
from gateway.proxy.compression import GrpcCompression, HttpCompression, wanted
from gateway.wire.codec import Codec, Stream
from gateway.wire.grpc import MessageReader
from tests.proxy.journey import Journey
from tests.rig import CANCEL, GRPC, GRPC_OK, INTERNAL, OK_TRAILERS, Backend, Message, Rig, request

ON = config.Compression(grpc=True, max_message=1 << 22)
GET = request(b"GET", b"/", (b"accept-encoding", b"gzip"))
CALL = [*GRPC, (b"grpc-accept-encoding", b"identity, deflate, gzip")]
JSON_OK = [(b":status", b"200"), (b"content-type", b"application/json")]
TEXT = b"".join(b"%d, " % number for number in range(4000))


@pytest.fixture
def journey(rig: Rig, backend: Backend) -> Journey:
    return Journey(rig, backend, route={"compression": ON})


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


def read(body: bytes) -> list[tuple[bool, bytes]]:
    """Messages; what is left over fails."""
    reader = MessageReader(1 << 24)
    found = [(message.compressed, message.payload) for message in reader.receive(body)]
    assert reader.at_boundary
    return found


def comes(rig: Rig, message: Message, octets: int) -> None:
    """Wait until the client has that much of a compressed body in plain octets."""
    rig.until(lambda: len(zlib.decompressobj(31).decompress(message.body)) >= octets)


# --------------------------------------------------------------------------------- who gets it


def head(*fields: tuple[bytes, bytes], method: bytes = b"GET", grpc: bool = False) -> RequestHead:
    return RequestHead(method, b"http", b"a.test", b"/", fields, is_grpc=grpc)


def made(request: RequestHead, settings: config.Compression) -> type | None:
    make = wanted(request, settings)
    return None if make is None else type(make(Codec(), Stream(1, None, 0, 0)))


ACCEPT = (b"accept-encoding", b"gzip")
GRPC_ACCEPT = (b"grpc-accept-encoding", b"gzip")


@pytest.mark.parametrize(
    ("asked", "settings", "what"),
    [
        (head(ACCEPT), ON, HttpCompression),
        (head(), ON, None),
        (head(ACCEPT), config.Compression(http=False), None),
        (head(ACCEPT, method=b"HEAD"), ON, None),
        # A list that is cut into several fields is one list.
        (head((b"accept-encoding", b"br"), ACCEPT), ON, HttpCompression),
        (head((b"accept-encoding", b"*"), (b"accept-encoding", b"gzip;q=0")), ON, None),
        (head(GRPC_ACCEPT, grpc=True), ON, GrpcCompression),
        (head((b"grpc-accept-encoding", b"br"), GRPC_ACCEPT, grpc=True), ON, GrpcCompression),
        (head(GRPC_ACCEPT, grpc=True), config.Compression(), None),
        # The encoding of HTTP says nothing of messages.
        (head(ACCEPT, grpc=True), ON, None),
    ],
)
def test_who_gets_which(
    asked: RequestHead, settings: config.Compression, what: type | None
) -> None:
    assert made(asked, settings) is what


# ----------------------------------------------------------------------------------------- HTTP


def test_each_piece_leaves_when_it_comes(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.head(at, [*JSON_OK, (b"etag", b'"a"'), (b"vary", b"origin"), (b"vary", b"cookie")])
    message = journey.client.message(stream_id)
    for number in (1, 2, 3):
        peer.data(at, b"[1, 2, 3]")
        comes(rig, message, 9 * number)
    peer.data(at, b"", end=True)
    journey.over(stream_id)
    assert gzip.decompress(message.body) == b"[1, 2, 3]" * 3
    assert message.fields[b"content-encoding"] == b"gzip"
    assert message.fields[b"vary"] == b"origin, cookie, accept-encoding"
    assert message.fields[b"etag"] == b'W/"a"'


def test_trailers_come_after_the_compressed_end(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.head(at, JSON_OK)
    peer.data(at, TEXT)
    peer.head(at, [(b"x-sum", b"1")], end=True)
    message = journey.over(stream_id)
    assert gzip.decompress(message.body) == TEXT
    assert message.trailers == {b"x-sum": b"1"}


@pytest.mark.parametrize(
    "fields",
    [
        [(b":status", b"200"), (b"content-type", b"text/event-stream")],
        [*JSON_OK, (b"content-length", b"4")],
        [*JSON_OK, (b"content-encoding", b"br")],
        [*JSON_OK, (b"cache-control", b"no-transform")],
        [(b":status", b"206"), JSON_OK[1], (b"content-range", b"bytes 0-3/9")],
        [(b":status", b"200")],
    ],
)
def test_what_is_left_alone(
    rig: Rig, backend: Backend, journey: Journey, fields: list[tuple[bytes, bytes]]
) -> None:
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.head(at, fields)
    peer.data(at, b"body", end=True)
    message = journey.over(stream_id)
    assert message.body == b"body"
    got = {name: value for name, value in message.fields.items() if name in dict(fields)}
    assert got == dict(fields)
    assert b"vary" not in message.fields


def test_an_interim_response_does_not_begin_it(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"103"), (b"link", b"</a>")])
    peer.head(at, JSON_OK)
    peer.data(at, TEXT, end=True)
    message = journey.over(stream_id)
    assert message.interim[0].get(b"content-encoding") is None
    assert gzip.decompress(message.body) == TEXT


@pytest.mark.parametrize("min_size", [0, 1024])
def test_an_answer_of_our_own_can_be_read(rig: Rig, backend: Backend, min_size: int) -> None:
    """The endpoint fails before its head: what is said of it is encoded as its head says."""
    settings = config.Compression(min_size=min_size)
    journey = Journey(rig, backend, route={"compression": settings})
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.rst(at, INTERNAL)
    message = journey.over(stream_id)
    assert message.status == 502
    body = message.body
    if message.fields.get(b"content-encoding") == b"gzip":
        assert b"content-length" not in message.fields
        body = gzip.decompress(body)
    else:
        assert int(message.fields[b"content-length"]) == len(body)
    assert body.isascii()
    assert body


def test_a_response_that_breaks_off_is_not_ended(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    """No end of the gzip stream may tell the client that it has all."""
    stream_id = journey.client.send(GET)
    peer, at, _ = backend.request()
    peer.head(at, JSON_OK)
    peer.data(at, TEXT)
    message = journey.client.message(stream_id)
    comes(rig, message, len(TEXT))
    peer.rst(at, INTERNAL)
    journey.over(stream_id)
    assert message.reset is not None
    reading = zlib.decompressobj(31)
    reading.decompress(message.body)
    assert not reading.eof


# ----------------------------------------------------------------------------------------- gRPC


def test_messages_are_compressed_each(rig: Rig, backend: Backend, journey: Journey) -> None:
    """A small one, one in two pieces, one that can't get smaller, one compressed already."""
    stream_id = journey.client.send(CALL, framed(b"ask"))
    peer, at, _ = backend.request()
    noise = random.Random(4).randbytes(3000)
    parts = [(0, b"small"), (0, TEXT), (0, noise), (1, b"x" * 2000)]
    octets = b"".join(framed(body, flag) for flag, body in parts)
    peer.head(at, GRPC_OK)
    message = journey.client.message(stream_id)
    peer.data(at, octets[:3000])
    rig.until(lambda: message.body == framed(b"small"))
    peer.data(at, octets[3000:])
    peer.head(at, OK_TRAILERS, end=True)
    journey.over(stream_id)
    assert message.fields[b"grpc-encoding"] == b"gzip"
    got = read(message.body)
    assert [flag for flag, _ in got] == [False, True, False, True]
    assert [got[0][1], got[2][1], got[3][1]] == [b"small", noise, b"x" * 2000]
    assert gzip.decompress(got[1][1]) == TEXT
    assert message.trailers == dict(OK_TRAILERS)


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (CALL, [*GRPC_OK, (b"grpc-encoding", b"deflate")]),
        (CALL, [(b":status", b"200"), (b"content-type", b"application/octet-stream")]),
        (GRPC, GRPC_OK),
    ],
)
def test_calls_that_are_left_alone(
    rig: Rig,
    backend: Backend,
    journey: Journey,
    asked: list[tuple[bytes, bytes]],
    fields: list[tuple[bytes, bytes]],
) -> None:
    stream_id = journey.client.send(asked, b"")
    peer, at, _ = backend.request()
    peer.head(at, fields)
    peer.data(at, framed(TEXT))
    peer.head(at, OK_TRAILERS, end=True)
    message = journey.over(stream_id)
    assert message.body == framed(TEXT)
    assert message.fields.get(b"grpc-encoding") == dict(fields).get(b"grpc-encoding")


def test_a_call_that_has_only_trailers(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(CALL, b"")
    peer, at, _ = backend.request()
    peer.head(at, [*GRPC_OK, (b"grpc-status", b"5")], end=True)
    message = journey.over(stream_id)
    assert message.fields[b"grpc-status"] == b"5"
    assert b"grpc-encoding" not in message.fields


def test_a_call_that_breaks_off_has_its_status(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    stream_id = journey.client.send(CALL, b"")
    peer, at, _ = backend.request()
    peer.head(at, GRPC_OK)
    peer.data(at, framed(TEXT))
    message = journey.client.message(stream_id)
    rig.until(lambda: bool(message.body))
    peer.rst(at, INTERNAL)
    journey.over(stream_id)
    ((flag, body),) = read(message.body)
    assert flag
    assert gzip.decompress(body) == TEXT
    assert message.trailers is not None
    assert message.trailers[b"grpc-status"] != b"0"


def test_a_message_larger_than_the_window_comes_whole(
    rig: Rig, backend: Backend, journey: Journey
) -> None:
    """What is held is given back, or its sender would wait for ever."""
    stream_id = journey.client.send(CALL, b"")
    peer, at, _ = backend.request()
    peer.head(at, GRPC_OK)
    big = TEXT * 150  # 3 MB
    send(rig, peer, at, framed(big))
    peer.head(at, OK_TRAILERS, end=True)
    ((flag, body),) = read(journey.over(stream_id).body)
    assert flag
    assert gzip.decompress(body) == big


# -------------------------------------------------------------------------------------- credit


def send(rig: Rig, peer, at: int, octets: bytes) -> None:
    """Send as the window opens."""
    sent = 0
    while sent < len(octets):
        rig.until(lambda: peer.room(at) > 0, f"room after {sent} octets")
        size = min(peer.room(at), len(octets) - sent)
        peer.data(at, octets[sent : sent + size])
        sent += size


@pytest.mark.parametrize(
    ("asked", "answer", "part"),
    [
        (GET, JSON_OK, random.Random(4).randbytes(20_000).hex().encode()),
        (CALL, GRPC_OK, framed(random.Random(4).randbytes(20_000).hex().encode())),
    ],
    ids=["http", "grpc"],
)
def test_a_client_that_does_not_read_holds_the_endpoint_back(
    rig: Rig,
    backend: Backend,
    asked: list[tuple[bytes, bytes]],
    answer: list[tuple[bytes, bytes]],
    part: bytes,
) -> None:
    """The endpoint has to stop; when the client reads, all comes, and the endpoint can go on."""
    journey = Journey(rig, backend, route={"compression": ON})
    window = {int(h2.settings.SettingCodes.INITIAL_WINDOW_SIZE): 10_000}
    client = rig.connect(journey.site, settings=window)
    client.crediting = False
    stream_id = client.send(asked, None if asked is GET else b"")
    peer, at, _ = backend.request()
    peer.head(at, answer)
    sent = 0
    for _ in range(400):  # 16 MB, far above what any window lets through
        rig.settle()
        size = min(peer.room(at), len(part) - sent % len(part))
        if not size:
            break
        peer.data(at, part[sent % len(part) :][:size])
        sent += size
    assert peer.room(at) == 0
    message = client.message(stream_id)
    assert len(message.body) == 10_000
    client.crediting = True
    client.conn.acknowledge_received_data(10_000, stream_id)
    client.flush()
    rest = -sent % len(part)
    send(rig, peer, at, part[sent % len(part) :][:rest])
    if asked is GET:
        peer.data(at, b"", end=True)
    else:
        peer.head(at, OK_TRAILERS, end=True)
    rig.until(lambda: message.over)
    times = (sent + rest) // len(part)
    if asked is GET:
        assert gzip.decompress(message.body) == part * times
    else:
        got = read(message.body)
        assert [gzip.decompress(body) for _, body in got] == [part[5:]] * times


def test_a_client_that_goes_cancels(rig: Rig, backend: Backend, journey: Journey) -> None:
    stream_id = journey.client.send(CALL, b"")
    peer, at, asked = backend.request()
    peer.head(at, GRPC_OK)
    peer.data(at, framed(TEXT)[:5000])  # a message that is held
    rig.settle()
    journey.client.rst(stream_id, CANCEL)
    rig.until(lambda: asked.reset == CANCEL)


def test_the_head_is_left_as_it_was() -> None:
    """Equal heads are one object, which serves other clients too."""
    sent: list[Fields] = []

    class Wire(Codec):
        def send_head(self, stream: Stream, fields: Fields, extra: Fields, end: bool) -> None:
            sent.append(fields)

    fields: Fields = (*JSON_OK, (b"etag", b'"a"'))
    before = tuple(fields)
    stream = Stream(1, None, 0, 0)
    HttpCompression(Wire(), stream, settings=ON).send_head(stream, fields, (), False)
    assert fields == before
    assert sent != [fields]
