"""gRPC-Web: content types, the text form, the trailer frame."""

from __future__ import annotations

from base64 import b64decode, b64encode
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.grpc_web import TextDecoder, content_type, encode_text, is_grpc, trailer_frame

WEB = b"application/grpc-web"
GRPC = b"application/grpc"


@pytest.mark.parametrize(
    ("value", "text", "grpc", "answered"),
    [
        (WEB, False, GRPC, WEB + b"+proto"),
        (WEB + b"+proto", False, GRPC + b"+proto", WEB + b"+proto"),
        (b"Application/gRPC-Web+JSON; x=y", False, GRPC + b"+json", WEB + b"+proto"),
        (WEB + b"-text", True, GRPC, WEB + b"-text+proto"),
        (WEB + b"-text+proto", True, GRPC + b"+proto", WEB + b"-text+proto"),
    ],
)
def test_content_types(value: bytes, text: bool, grpc: bytes, answered: bytes) -> None:
    kind = content_type(value)
    assert kind is not None
    assert (kind.text, kind.grpc()) == (text, grpc)
    assert kind.web(b"application/grpc+proto") == answered


@pytest.mark.parametrize(
    "value",
    [b"application/grpc", b"application/grpc-webx", b"application/grpc-web+", b"text/plain", b""],
)
def test_other_content_types(value: bytes) -> None:
    assert content_type(value) is None


def test_a_response_without_a_format_keeps_the_request_s() -> None:
    kind = content_type(b"application/grpc-web+thrift")
    assert kind is not None
    assert kind.web(b"application/grpc") == b"application/grpc-web+thrift"
    assert is_grpc(b"application/grpc")
    assert is_grpc(b"application/grpc+proto; charset=utf-8")
    assert not is_grpc(b"application/grpc-web")
    assert not is_grpc(b"text/html")


@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(0, 200), max_size=10))
def test_text_with_padding_anywhere_at_every_cut(pieces: list[bytes], cuts: list[int]) -> None:
    text = b"".join(b64encode(piece) for piece in pieces)
    decoder = TextDecoder()
    found = b""
    edges = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    for start, end in pairwise(edges):
        found += decoder.feed(text[start:end])
    decoder.end()
    assert found == b"".join(pieces)


@pytest.mark.parametrize(
    "text", [b"ab c", b"a===", b"====", b"ab=c", b"\xff\xff\xff\xff", b"ab\r\n"]
)
def test_what_is_not_base64(text: bytes) -> None:
    decoder = TextDecoder()
    with pytest.raises(ValueError):
        decoder.feed(text)


def test_text_that_is_cut_off() -> None:
    decoder = TextDecoder()
    assert decoder.feed(b"abcde") == b64decode(b"abcd")
    with pytest.raises(ValueError):
        decoder.end()


def test_the_trailer_frame() -> None:
    frame = trailer_frame(((b"grpc-status", b"0"), (b"x-a", b"b")))
    assert frame == b"\x80\0\0\0\x18grpc-status: 0\r\nx-a: b\r\n"
    assert b64decode(encode_text(frame)) == frame
