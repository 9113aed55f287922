"""Field sections of HTTP/1.1, read and written; tests/e2e/test_smuggling.py has what is refused."""

from __future__ import annotations

from contextlib import suppress

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.head import Field, Fields
from gateway.wire.fields import MalformedHead
from gateway.wire.http1 import writing
from gateway.wire.http1.heads import (
    Http1Request,
    TooManyFields,
    UnsupportedVersion,
    read_request,
    read_response,
    read_trailers,
)

TOKEN = st.text("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~", min_size=1, max_size=12)
NAMES = TOKEN.map(lambda name: "x-" + name)
VALUES = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30
).map(lambda text: text.strip(" \t\xa0\x85"))
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
PATHS = st.text("abc/%?=&._~-:@!$'()*+,;0123456789", max_size=20).map(lambda path: "/" + path)


def request(*lines: str, start: str = "GET / HTTP/1.1", host: str = "Host: a.test") -> bytes:
    return "\r\n".join((start, *([host] if host else []), *lines, "", "")).encode("latin-1")


def read(*lines: str, **parts: str) -> Http1Request:
    return read_request(request(*lines, **parts), b"http", 100)


@given(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]), PATHS, FIELDS)
def test_what_is_accepted_h11_reads_the_same(
    method: str, path: str, fields: list[tuple[str, str]]
) -> None:
    lines = [f"{name.title()}: \t{value} " for name, value in fields]
    octets = request(*lines, start=f"{method} {path} HTTP/1.1")
    head = read_request(octets, b"http", 100).head
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(octets)
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    assert (head.method, head.path) == (bytes(event.method), bytes(event.target))
    theirs = [(bytes(name), bytes(value)) for name, value in event.headers if name != b"host"]
    assert list(head.fields) == theirs
    assert head.authority == b"a.test"


@given(st.binary(max_size=80), st.integers(0, 60))
def test_mutations_raise_nothing_else(noise: bytes, at: int) -> None:
    octets = request("Content-Length: 3", "X: y", start="POST /a?b HTTP/1.1")
    octets = octets[: at % len(octets)] + noise + octets[at % len(octets) :]
    if not octets.endswith(b"\r\n\r\n"):
        octets += b"\r\n\r\n"
    for parse in (
        lambda: read_request(octets, b"http", 100),
        lambda: read_response(octets, 100),
        lambda: read_trailers(octets, 100),
    ):
        with suppress(MalformedHead):
            parse()


def test_what_belongs_to_the_connection() -> None:
    got = read("Connection: close, X-Private", "X-Private: 1", "Keep-Alive: timeout=5", "X: y")
    assert got.head.fields == ((b"x", b"y"),)
    assert not got.keep_alive
    assert read().keep_alive
    assert not read(start="GET / HTTP/1.0").keep_alive
    assert read("Connection: Keep-Alive", start="GET / HTTP/1.0").keep_alive
    got = read("TE: gzip;q=0.5, Trailers", "Connection: TE")
    assert got.te_trailers
    assert got.head.fields == ((b"te", b"trailers"),)
    assert read("TE: gzip").head.fields == ()


def test_bodies_and_expectations() -> None:
    got = read("Content-Length: 12", start="POST / HTTP/1.1")
    assert (got.head.content_length, got.chunked) == (12, False)
    got = read("Transfer-Encoding: Chunked", start="POST / HTTP/1.1")
    assert (got.head.content_length, got.chunked) == (-1, True)
    assert read("Expect: 100-Continue", "Content-Length: 1").expects_continue
    assert not read("Expect: 100-continue", start="GET / HTTP/1.0").expects_continue


def test_grpc_facts_are_found() -> None:
    head = read("Content-Type: application/grpc+proto", "grpc-timeout: 5S").head
    assert head.is_grpc
    assert head.grpc_timeout_s == 5.0


@pytest.mark.parametrize(
    ("target", "authority", "path"),
    [
        ("http://b.test/x?y", b"b.test", b"/x?y"),
        ("HTTP://b.test:81", b"b.test:81", b"/"),
        ("https://b.test?q", b"b.test", b"/?q"),
        ("http://[::1]:8080/", b"[::1]:8080", b"/"),
    ],
)
def test_absolute_targets(target: str, authority: bytes, path: bytes) -> None:
    head = read(start=f"GET {target} HTTP/1.1").head
    assert (head.authority, head.path) == (authority, path)


def test_connect_is_a_request_without_a_path() -> None:
    head = read(start="CONNECT a.test:443 HTTP/1.1", host="Host: a.test:443").head
    assert (head.method, head.authority, head.path) == (b"CONNECT", b"a.test:443", b"")


UPGRADE = ("Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: abc")


def test_only_a_websocket_upgrade_counts() -> None:
    assert read("Upgrade: WebSocket", *UPGRADE).head.protocol == b"websocket"
    for lines, start in (
        (("Upgrade: h2c", *UPGRADE), "GET / HTTP/1.1"),
        (("Upgrade: websocket, h2c", *UPGRADE), "GET / HTTP/1.1"),
        (("Upgrade: websocket", *UPGRADE[1:]), "GET / HTTP/1.1"),
        (("Upgrade: websocket", *UPGRADE[:2]), "GET / HTTP/1.1"),
        (("Upgrade: websocket", *UPGRADE), "POST / HTTP/1.1"),
        (("Upgrade: websocket", *UPGRADE), "GET / HTTP/1.0"),
        (("Upgrade: websocket", *UPGRADE, "Content-Length: 1"), "GET / HTTP/1.1"),
    ):
        head = read(*lines, start=start).head
        assert head.protocol is None
        assert head.get(b"upgrade") is None


def test_limits_and_versions() -> None:
    with pytest.raises(TooManyFields):
        read_request(request("A: b", "C: d"), b"http", 2)
    with pytest.raises(UnsupportedVersion):
        read(start="GET / HTTP/2.0")
    with pytest.raises(UnsupportedVersion):
        read_response(b"HTTP/2.0 200 OK\r\n\r\n", 10)


def test_responses() -> None:
    got = read_response(b"HTTP/1.1 200 Fine by me\r\nContent-Length: 3\r\nX:  y\r\n\r\n", 10)
    assert (got.head.status, got.head.content_length) == (200, 3)
    assert got.head.fields == ((b"content-length", b"3"), (b"x", b"y"))
    assert got.keep_alive
    assert not read_response(b"HTTP/1.0 200 OK\r\n\r\n", 10).keep_alive
    got = read_response(
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n", 10
    )
    assert (got.head.status, got.upgrade, got.head.fields) == (101, b"websocket", ())


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 99 X", b"HTTP/1.1 600 X", b"HTTP/1.1 20 X", b"HTTP/1.1"]
)
def test_statuses_that_are_none(line: bytes) -> None:
    with pytest.raises(MalformedHead):
        read_response(line + b"\r\n\r\n", 10)


# -- writing ---------------------------------------------------------------------------------

PSEUDO: Fields = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"a.test"),
    (b":path", b"/a?b"),
)


def plain(fields: list[tuple[str, str]]) -> Fields:
    return tuple((name.encode(), value.encode("latin-1")) for name, value in fields)


@given(FIELDS, FIELDS)
def test_what_is_written_reads_back(
    fields: list[tuple[str, str]], extra: list[tuple[str, str]]
) -> None:
    whole = (*PSEUDO, *plain(fields))
    out = bytearray()
    writing.append_request_head(out, whole, plain(extra), writing.CHUNKED)
    got = read_request(bytes(out), b"http", 100)
    assert got.head.fields == plain(fields) + plain(extra)
    assert (got.head.method, got.head.path, got.head.authority) == (b"POST", b"/a?b", b"a.test")
    assert got.chunked
    response = bytearray()
    answer: Fields = ((b":status", b"201"), *plain(fields))
    writing.append_response_head(response, answer, plain(extra), writing.EMPTY | writing.CLOSE)
    back = read_response(bytes(response), 100)
    assert back.head.fields == (*plain(fields), *plain(extra), (b"content-length", b"0"))
    assert not back.keep_alive


@pytest.mark.parametrize(
    "field",
    [
        (b"x", b"a\r\nb: c"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"a\0b"),
        (b"x\r\ny", b"a"),
        (b"x y", b"a"),
        (b"x:", b"a"),
        (b"", b"a"),
        (b":method", b"GET /x HTTP/1.1\r\n"),
        (b":path", b"/ x"),
        (b":path", b"/\r\n"),
        (b":path", b""),
        (b":authority", b"a b"),
        (b":authority", b"a\r\nx: y"),
    ],
)
def test_what_would_split_a_line_is_not_written(field: Field) -> None:
    fields = tuple(field if name == field[0] else (name, value) for name, value in PSEUDO)
    if field not in fields:
        fields = (*fields, field)
    out = bytearray(b"before")
    with pytest.raises(ValueError):
        writing.append_request_head(out, fields, (), 0)
    assert out == b"before"
    if field[0][:1] != b":":
        with pytest.raises(ValueError):
            writing.append_request_head(out, PSEUDO, (field,), 0)
        with pytest.raises(ValueError):
            writing.append_last_chunk(out, (field,))
    assert out == b"before"


def test_framing() -> None:
    fields: Fields = ((b":status", b"204"), (b"content-length", b"0"), (b"x", b"y"))
    assert writing.has_length(fields)
    assert not writing.has_length(((b":status", b"204"),))
    out = bytearray()
    writing.append_response_head(out, fields, (), writing.NO_LENGTH)
    assert out == b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n"
    out = bytearray()
    writing.append_response_head(out, ((b":status", b"799"),), (), writing.KEEP_ALIVE)
    assert out == b"HTTP/1.1 799 \r\nconnection: keep-alive\r\n\r\n"
    out = bytearray()
    writing.append_request_head(out, PSEUDO, (), writing.UPGRADE)
    assert b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n" in out
    out = bytearray()
    writing.append_chunk(out, b"x" * 26)
    writing.append_last_chunk(out, ((b"a", b"b"),))
    assert out == b"1a\r\n" + b"x" * 26 + b"\r\n0\r\na: b\r\n\r\n"


def test_equal_tuples_of_different_fields_are_told_apart() -> None:
    """What is remembered is remembered for the object, and the object is kept alive."""
    for number in range(3000):
        out = bytearray()
        writing.append_response_head(out, ((b":status", b"200"), (b"n", b"%d" % number)), (), 0)
        assert b"\r\nn: %d\r\n" % number in out
