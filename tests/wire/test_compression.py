"""Who gets gzip, and the streams that make it."""

from __future__ import annotations

import gzip
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
    accepts_gzip,
    compressed_fields,
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
    ],
)
def test_accept_encoding(value: bytes | None, accepted: bool) -> None:
    assert accepts_gzip(value) is accepted


def test_textual_types() -> None:
    for media in (b"text/plain", b"Application/JSON; charset=utf-8", b"application/ld+json"):
        assert is_textual(media)
    for media in (
        b"text/event-stream",
        b"application/x-ndjson",
        b"application/grpc",
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
        (((b":status", b"206"), JSON[1]), False),
        (((b":status", b"304"), JSON[1]), False),
        (((b":status", b"200"), (b"content-type", b"text/event-stream")), False),
        (((b":status", b"200"),), False),
    ],
)
def test_responses(fields: Fields, wanted: bool) -> None:
    assert http_wanted(fields, Compression()) is wanted


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
