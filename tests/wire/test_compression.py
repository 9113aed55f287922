"""Who gets gzip, and the streams that make it."""

from __future__ import annotations

import gzip
import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Compression
from gateway.head import Fields
from gateway.wire.compression import (
    GrpcMessages,
    GzipBody,
    accepts_grpc_gzip,
    accepts_gzip,
    compressed_fields,
    grpc_wanted,
    http_wanted,
    is_textual,
)


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (None, False),
        (b"", False),
        (b"gzip", True),
        (b"GZIP", True),
        (b"deflate, gzip;q=0.5", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000", False),
        (b"*", True),
        (b"*;q=0", False),
        (b"*, gzip;q=0", False),
        (b"identity", False),
        (b"br", False),
        (b"gzip;q=x", False),
        (b"x-gzip", True),
        (b"gzip;q=0, x-gzip;q=0, *", False),
        (b"gzip;q=1.000", True),
        (b"gzip;q=0.001", True),
        (b"gzip;q=1.", True),
        (b"gzip ; Q=0.5", True),
        (b"gzip;q=2", False),
        (b"gzip;q=inf", False),
        (b"gzip;q=0.0001", False),
        (b"gzip;q=1_0", False),
        (b"gzip;q=", False),
        (b"gzip;q=0.1, identity", False),
        (b"gzip;q=0.5, identity;q=0.5", True),
        (b"identity;q=0", False),
        (b",, gzip", True),
    ],
)
def test_accept_encoding(value: bytes | None, accepted: bool) -> None:
    assert accepts_gzip(value) is accepted


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (None, False),
        (b"", False),
        (b"gzip", True),
        (b"identity, deflate,\tGZIP", True),
        (b"*", False),
        (b"x-gzip", False),
        (b"identity", False),
    ],
)
def test_grpc_accept_encoding(value: bytes | None, accepted: bool) -> None:
    assert accepts_grpc_gzip(value) is accepted


def test_textual_types() -> None:
    for media in (
        b"text/plain",
        b"Application/JSON; charset=utf-8",
        b"application/ld+json",
        b"image/svg+xml",
    ):
        assert is_textual(media)
    for media in (
        b"text/event-stream",
        b"Text/Event-Stream; charset=utf-8",
        b"application/x-ndjson",
        b"application/grpc",
        b"application/grpc+json",
        b"application/grpc-web+json",
        b"application/connect+json",
        b"image/png",
        b"",
    ):
        assert not is_textual(media)


JSON: Fields = ((b":status", b"200"), (b"content-type", b"application/json"))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (JSON, True),
        ((*JSON, (b"content-length", b"5000")), True),
        ((*JSON, (b"content-length", b"50")), False),
        ((*JSON, (b"content-encoding", b"br")), False),
        ((*JSON, (b"content-range", b"bytes 0-1/2")), False),
        ((*JSON, (b"cache-control", b"public, No-Transform")), False),
        ((*JSON, (b"content-digest", b"sha-256=:eA==:")), False),
        ((*JSON, (b"repr-digest", b"sha-256=:eA==:")), False),
        ((*JSON, (b"content-length", b"1024")), True),
        ((*JSON, (b"content-length", b"1023")), False),
        (((b":status", b"404"), JSON[1]), True),
        (((b":status", b"103"), JSON[1]), False),
        (((b":status", b"204"), JSON[1]), False),
        (((b":status", b"206"), JSON[1]), False),
        (((b":status", b"304"), JSON[1]), False),
        (((b":status", b"200"), (b"content-type", b"text/event-stream")), False),
        (((b":status", b"200"),), False),
    ],
)
def test_responses(fields: Fields, wanted: bool) -> None:
    assert http_wanted(fields, Compression()) is wanted


GRPC: Fields = ((b":status", b"200"), (b"content-type", b"application/grpc+proto"))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (GRPC, True),
        ((*GRPC, (b"grpc-encoding", b"identity")), True),
        ((*GRPC, (b"grpc-encoding", b"gzip")), False),
        ((*GRPC, (b"grpc-encoding", b"identity"), (b"grpc-encoding", b"deflate")), False),
        ((*GRPC, (b"content-encoding", b"gzip")), False),
        (((b":status", b"103"), GRPC[1]), False),
        (((b":status", b"503"), GRPC[1]), False),
        (JSON, False),
        (JSON[:1], False),
    ],
)
def test_grpc_responses(fields: Fields, wanted: bool) -> None:
    assert grpc_wanted(fields) is wanted


@pytest.mark.parametrize(
    ("values", "vary"),
    [
        ((), b"accept-encoding"),
        ((b"origin", b"cookie"), b"origin, cookie, accept-encoding"),
        ((b"origin", b"Accept-Encoding"), b"origin, Accept-Encoding"),
        ((b"x-accept-encoding",), b"x-accept-encoding, accept-encoding"),
        ((b"*",), b"*"),
    ],
)
def test_vary_loses_nothing(values: tuple[bytes, ...], vary: bytes) -> None:
    fields = compressed_fields((*JSON, *((b"vary", value) for value in values)))
    assert [value for name, value in fields if name == b"vary"] == [vary]


def test_a_weak_etag_stays() -> None:
    assert (b"etag", b'W/"a"') in compressed_fields((*JSON, (b"etag", b'W/"a"')))


def test_the_fields_of_a_compressed_response() -> None:
    fields = (*JSON, (b"content-length", b"9"), (b"etag", b'"a"'), (b"accept-ranges", b"bytes"))
    assert compressed_fields((*fields, (b"vary", b"origin"))) == (
        *JSON,
        (b"etag", b'W/"a"'),
        (b"content-encoding", b"gzip"),
        (b"vary", b"origin, accept-encoding"),
    )
    assert compressed_fields((*JSON, (b"vary", b"Accept-Encoding")))[-1] == (
        b"vary",
        b"Accept-Encoding",
    )


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_each_piece_can_be_read_when_it_comes(pieces: list[bytes]) -> None:
    body = GzipBody(6)
    reading = zlib.decompressobj(31)
    for piece in pieces:
        assert reading.decompress(body.feed(piece)) == piece
    reading.decompress(body.end())
    assert reading.eof


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


def messages(octets: bytes) -> list[tuple[int, bytes]]:
    found = []
    while octets:
        size = int.from_bytes(octets[1:5], "big")
        found.append((octets[0], octets[5 : 5 + size]))
        octets = octets[5 + size :]
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.binary(max_size=30).map(lambda part: part * 12)), max_size=6
    ),
    st.lists(st.integers(0, 2000), max_size=10),
)
def test_grpc_messages_at_every_cut(parts: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """Small, large, and already compressed ones pass; the others are smaller, and the same."""
    settings = Compression(grpc=True, min_size=100, max_message=300)
    octets = b"".join(framed(message, flag) for flag, message in parts)
    stream = GrpcMessages(settings)
    out = b""
    edges = sorted({0, *(cut % (len(octets) + 1) for cut in cuts), len(octets)})
    for start, end in pairwise(edges):
        out += stream.feed(octets[start:end])
    assert stream.end() == b""
    got = messages(out)
    assert len(got) == len(parts)
    for (flag, message), (was, original) in zip(got, parts, strict=True):
        if was or not 100 <= len(original) <= 300:
            assert (flag, message) == (was, original)
        elif flag:
            assert len(message) < len(original)
            assert gzip.decompress(message) == original
        else:
            assert message == original


def test_a_large_message_is_not_held() -> None:
    stream = GrpcMessages(Compression(grpc=True, max_message=1000))
    head = framed(b"x" * 100_000)[:500]
    assert stream.feed(head) == head


def test_what_passes_is_not_held() -> None:
    """A small message, and one that is compressed, in pieces: each leaves when it comes."""
    for octets in (framed(b"x" * 50), framed(b"x" * 5000, 1), framed(b"x" * 50_000)):
        stream = GrpcMessages(Compression(grpc=True, min_size=100, max_message=10_000))
        assert stream.feed(octets[:3]) == b""  # what it is shows with its length
        assert stream.feed(octets[3:20]) == octets[:20]
        assert stream.feed(octets[20:21]) == octets[20:21]
        following = framed(b"y" * 200)
        out = stream.feed(octets[21:] + following)
        assert out.startswith(octets[21:])
        (message,) = messages(out[len(octets) - 21 :])
        assert message[0] == 1
        assert gzip.decompress(message[1]) == b"y" * 200


def test_what_does_not_get_smaller_is_let_go_early() -> None:
    """Numbers and images: after 64 KiB the rest passes as it comes."""
    message = framed(random.Random(4).randbytes(1_000_000))
    stream = GrpcMessages(Compression(grpc=True, max_message=1 << 22))
    assert stream.feed(message[:60_000]) == b""
    assert stream.feed(message[60_000:70_000]) == message[:70_000]
    assert stream.feed(message[70_000:70_001]) == message[70_000:70_001]
    following = framed(b"y" * 2000)
    out = stream.feed(message[70_001:] + following)
    assert out.startswith(message[70_001:])
    assert messages(out[len(message) - 70_001 :])[0][0] == 1
    assert stream.end() == b""


def test_a_short_message_that_does_not_get_smaller_stays_as_it_is() -> None:
    message = framed(random.Random(4).randbytes(2000))
    assert GrpcMessages(Compression(grpc=True, max_message=1 << 22)).feed(message) == message


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("step", [1000, 65_541, 400_000])
def test_large_messages_are_the_same(size: int, step: int) -> None:
    """Around the size of the trial, in pieces of every kind."""
    body = b"".join(b"%d, " % number for number in range(size // 4))[:size]
    octets = framed(body) * 2
    stream = GrpcMessages(Compression(grpc=True, max_message=1 << 22))
    out = b"".join(stream.feed(octets[at : at + step]) for at in range(0, len(octets), step))
    assert stream.end() == b""
    got = messages(out)
    assert [flag for flag, _ in got] == [1, 1]
    assert [gzip.decompress(message) for _, message in got] == [body, body]


def test_what_ends_inside_a_message_is_not_lost() -> None:
    for size in (3, 5, 700, 100_000):
        octets = framed(b"x" * 200_000)[:size]
        stream = GrpcMessages(Compression(grpc=True, max_message=1 << 22))
        assert stream.feed(octets) + stream.end() == octets
        assert stream.end() == b""
