"""Translations: what passes, and the octets that are given back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Failure, Kind
from gateway.head import Fields, RequestHead
from gateway.proxy.grpc_web import GrpcWeb, as_grpc, mode_of
from gateway.proxy.translation import Credit, Translation
from gateway.wire.codec import Codec, Stream

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1000), st.integers(0, 1000)),
        st.tuples(st.just("moved"), st.integers(0, 1000), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_credit_is_never_more_than_came_and_in_the_end_all(
    steps: list[tuple[str, int, int]],
) -> None:
    credit = Credit()
    came = made = back = moved = 0
    for what, one, other in steps:
        if what == "add":
            credit.add(one, other)
            came += one
            made += other
        else:
            octets = min(one, made - moved)
            moved += octets
            back += credit.moved(octets)
        assert 0 <= back <= came
    back += credit.moved(made - moved)
    assert back == came


class Wire(Codec):
    """A client's codec that takes ``room`` octets at once."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.room = 1 << 30
        self.consumed = 0

    def send_head(self, stream: Stream, fields: Fields, extra: Fields, end_stream: bool) -> None:
        self.sent.append(("head", fields, extra, end_stream))

    def send_data(self, stream: Stream, data: bytes, end_stream: bool) -> int:
        self.sent.append(("data", data, end_stream))
        moved = min(self.room, len(data))
        self.room -= moved
        return moved

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        self.sent.append(("trailers", fields))

    def reset(self, stream: Stream, code: int) -> None:
        self.sent.append(("reset", code))

    def consume(self, stream: Stream, octets: int) -> None:
        self.consumed += octets


class Owner:
    """The exchange."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.drained = 0

    def request_data(self, data: bytes, end: bool) -> None:
        self.told.append(("data", data, end))

    def response_drained(self, octets: int) -> None:
        self.drained += octets

    def fail(self, failure: Failure) -> None:
        self.told.append(("fail", failure.kind))

    def request_closed(self, why: int, code: int) -> None:
        self.told.append(("closed", why, code))

    def check(self, now: float) -> float:
        return now + 1.0


def new_stream() -> Stream:
    return Stream(1, None, 0, 0)


def web(content_type: bytes) -> tuple[GrpcWeb, Wire, Owner]:
    head = RequestHead(b"POST", b"http", b"a", b"/s/m", ((b"content-type", content_type),))
    mode = mode_of(head)
    assert mode is not None
    wire, owner = Wire(), Owner()
    translation = GrpcWeb(wire, new_stream(), mode=mode)
    translation.owner = owner
    return translation, wire, owner


def test_what_is_not_changed_passes() -> None:
    wire, owner = Wire(), Owner()
    plain = Translation(wire, new_stream())
    plain.owner = owner
    plain.send_head(plain.stream, ((b":status", b"200"),), (), False)
    assert plain.send_data(plain.stream, b"abc", True) == 3
    plain.reset(plain.stream, 8)
    plain.ear.request_data(b"xyz", False)
    plain.consume(plain.stream, 3)
    plain.ear.request_closed(1, 8)
    assert plain.ear.check(1.0) == 2.0
    assert wire.consumed == 3
    assert [each[0] for each in wire.sent] == ["head", "data", "reset"]
    assert owner.told == [("data", b"xyz", False), ("closed", 1, 8)]


def test_a_text_client_that_stalls_holds_the_endpoint_back() -> None:
    """What did not move to the client is not reported as moved, and is once it drains."""
    translation, wire, owner = web(b"application/grpc-web-text")
    stream = translation.stream
    translation.send_head(
        stream, ((b":status", b"200"), (b"content-type", b"application/grpc")), (), False
    )
    wire.room = 0
    assert translation.send_data(stream, b"x" * 300, False) == 0
    translation.ear.response_drained(200)
    assert 0 < owner.drained <= 150
    translation.ear.response_drained(200)
    assert owner.drained == 300


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=6))
def test_a_text_request_gives_back_what_came(body: bytes, cuts: list[int]) -> None:
    translation, wire, owner = web(b"application/grpc-web-text+proto")
    text = b64encode(body)
    edges = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    pairs = list(pairwise(edges)) or [(0, 0)]
    for start, end in pairs:
        translation.ear.request_data(text[start:end], end == len(text))
    made = b"".join(data for _, data, _ in owner.told)
    assert made == body
    assert owner.told[-1][2]
    assert wire.consumed <= len(text)
    translation.consume(translation.stream, len(made))
    assert wire.consumed == len(text)


@pytest.mark.parametrize("body", [b"ab!c", b"abc"])
def test_what_is_not_base64_fails_the_request(body: bytes) -> None:
    translation, _, owner = web(b"application/grpc-web-text")
    translation.ear.request_data(body, True)
    assert owner.told == [("fail", Kind.MALFORMED_REQUEST)]


def test_the_head_of_a_request_becomes_grpc() -> None:
    fields: Fields = (
        (b"content-type", b"application/grpc-web-text+proto"),
        (b"content-length", b"8"),
        (b"accept", b"application/grpc-web-text"),
        (b"x-user", b"1"),
    )
    head = RequestHead(
        b"POST", b"http", b"a", b"/s/m", fields, content_length=8, grpc_timeout_s=2.0
    )
    mode = mode_of(head)
    assert mode is not None
    grpc = as_grpc(head, mode)
    assert grpc.fields == (
        (b"x-user", b"1"),
        (b"content-type", b"application/grpc+proto"),
        (b"te", b"trailers"),
    )
    assert (grpc.is_grpc, grpc.content_length, grpc.grpc_timeout_s) == (True, -1, 2.0)
    assert mode_of(RequestHead(b"GET", b"http", b"a", b"/", fields)) is None


@pytest.mark.parametrize("text", [False, True])
def test_trailers_are_the_last_frame(text: bool) -> None:
    kind = b"application/grpc-web" + (b"-text" if text else b"") + b"+proto"
    translation, wire, _ = web(kind)
    stream = translation.stream
    grpc = (b"content-type", b"application/grpc+proto")
    translation.send_head(stream, ((b":status", b"200"), grpc, (b"trailer", b"x")), (), False)
    assert wire.sent[0] == ("head", ((b":status", b"200"), (b"content-type", kind)), (), False)
    translation.send_trailers(stream, ((b"grpc-status", b"0"),))
    _, data, end = wire.sent[1]
    assert end
    assert (b64decode(data) if text else data) == b"\x80\0\0\0\x10grpc-status: 0\r\n"


def test_what_is_no_grpc_passes_as_it_is() -> None:
    translation, wire, _ = web(b"application/grpc-web-text")
    html = ((b":status", b"404"), (b"content-type", b"text/html"))
    translation.send_head(translation.stream, html, (), False)
    translation.send_data(translation.stream, b"<p>", True)
    assert wire.sent == [("head", html, (), False), ("data", b"<p>", True)]
