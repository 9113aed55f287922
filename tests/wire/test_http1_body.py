"""Where a body of HTTP/1.1 ends (RFC 9112 sections 6.3 and 7.1)."""

from __future__ import annotations

from itertools import pairwise

import h11
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.head import Fields
from gateway.wire.fields import MalformedHead
from gateway.wire.http1.body import CHUNKED, LENGTH, NONE, UNTIL_CLOSE, BodyReader

NEXT = b"GET /next HTTP/1.1\r\n\r\n"


def reader(extensions: int = 100, trailers: int = 1000, fields: int = 10) -> BodyReader:
    return BodyReader(extensions, trailers, fields)


def read(body: BodyReader, octets: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """The body and what is behind it, fed in pieces cut at ``cuts``."""
    found = b""
    rest = b""
    edges = sorted({0, *(cut % (len(octets) + 1) for cut in cuts), len(octets)})
    for start, end in pairwise(edges):
        piece = octets[start:end]
        i = 0
        while i < len(piece) and not body.ended:
            taken = body.take(piece, i)
            assert taken > i or body.ended
            i = taken
            found += body.piece
        rest += piece[i:]
    return found, rest


CUTS = st.lists(st.integers(0, 400), max_size=12)
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b';a="b;c"', b" ;x"[1:]])
SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b"000%x"])


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes, Fields]:
    """A chunked body: its octets, its data, its trailers."""
    chunks = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    octets = b""
    for chunk in chunks:
        octets += draw(SIZES) % len(chunk) + draw(EXTENSIONS) + b"\r\n" + chunk + b"\r\n"
    trailers = tuple(
        draw(st.lists(st.sampled_from([(b"x-a", b"1"), (b"x-b", b"z z")]), max_size=3))
    )
    lines = b"".join(b"%s: %s\r\n" % field for field in trailers)
    return octets + b"0" + draw(EXTENSIONS) + b"\r\n" + lines + b"\r\n", b"".join(chunks), trailers


@given(chunked(), CUTS)
def test_chunks_at_every_cut(body: tuple[bytes, bytes, Fields], cuts: list[int]) -> None:
    octets, data, trailers = body
    one = reader()
    one.begin(CHUNKED, 0)
    assert read(one, octets + NEXT, cuts) == (data, NEXT)
    assert one.trailers == trailers


@given(chunked())
def test_two_other_parsers_read_the_same(body: tuple[bytes, bytes, Fields]) -> None:
    octets, data, _ = body
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head + octets)
    by_h11 = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        by_h11 += bytes(event.data) if isinstance(event, h11.Data) else b""
    by_llhttp: list[bytes] = []

    class Bodies:
        def on_body(self, piece: bytes) -> None:
            by_llhttp.append(piece)

    httptools.HttpRequestParser(Bodies()).feed_data(head + octets)
    assert by_h11 == data == b"".join(by_llhttp)


@given(st.binary(max_size=60), CUTS)
def test_garbage_is_refused_or_read_as_both_others_read_it(octets: bytes, cuts: list[int]) -> None:
    """Nothing but MalformedHead is raised, and what is accepted the strict parser accepts."""
    octets = b"5\r\n" + octets + b"\r\n0\r\n\r\n"
    body = reader()
    body.begin(CHUNKED, 0)
    try:
        found, rest = read(body, octets, cuts)
    except MalformedHead:
        return
    if not body.ended:
        return
    whole = octets[: len(octets) - len(rest)]
    pieces: list[bytes] = []

    class Bodies:
        def on_body(self, piece: bytes) -> None:
            pieces.append(piece)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    httptools.HttpRequestParser(Bodies()).feed_data(head + whole)
    assert b"".join(pieces) == found


@pytest.mark.parametrize(
    "octets",
    [
        b"\r\n",
        b" 3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"-3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"3_0\r\nabc\r\n",
        b"g\r\nabc\r\n",
        b"3\nabc\r\n",
        b"3\rabc\r\n",
        b"3;a\nb\r\nabc\r\n",
        b"3;a\rb\r\nabc\r\n",
        b"3;a\0\r\nabc\r\n",
        b"3\r\nabc\n0\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\r0\r\n",
        b"f" * 16 + b"\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n: y\r\n\r\n",
        b"0\r\nX: y\n\r\n\r\n",
        b"0\r\nX: y\r\n z\r\n\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 2, 1000])
def test_malformed(octets: bytes, step: int) -> None:
    body = reader()
    body.begin(CHUNKED, 0)
    with pytest.raises(MalformedHead):
        read(body, octets, list(range(0, len(octets), step)))


def test_limits() -> None:
    for octets in (
        b"1;" + b"x" * 200 + b"\r\n",
        b"1;" + b"x" * 200,
        (b"1;" + b"x" * 40 + b"\r\na\r\n") * 3,
        b"0\r\nX: " + b"y" * 2000 + b"\r\n\r\n",
        b"0\r\nX: " + b"y" * 2000,
        b"0\r\n" + b"X: y\r\n" * 11 + b"\r\n",
    ):
        body = reader()
        body.begin(CHUNKED, 0)
        with pytest.raises(MalformedHead):
            read(body, octets, [])


def test_fields_that_frame_are_no_trailers() -> None:
    body = reader()
    body.begin(CHUNKED, 0)
    octets = b"0\r\nContent-Length: 5\r\nX: y\r\nHost: b\r\nAuthorization: c\r\n\r\n"
    read(body, octets, [])
    assert body.trailers == ((b"x", b"y"),)


@given(st.binary(max_size=100), CUTS)
def test_a_length(data: bytes, cuts: list[int]) -> None:
    body = reader()
    body.begin(LENGTH, len(data))
    assert body.ended == (not data)
    assert read(body, data + NEXT, cuts) == (data, NEXT)
    assert body.ended
    assert not body.at_eof()


def test_none_and_until_close() -> None:
    body = reader()
    body.begin(NONE, 0)
    assert read(body, NEXT, []) == (b"", NEXT)
    body.begin(UNTIL_CLOSE, 0)
    assert read(body, NEXT, [3, 7]) == (NEXT, b"")
    assert not body.ended
    assert body.at_eof()


def test_small_chunks_of_one_read_come_together() -> None:
    body = reader()
    body.begin(CHUNKED, 0)
    octets = b"1\r\na\r\n" * 1000
    assert body.take(octets, 0) == len(octets)
    assert body.piece == b"a" * 1000
