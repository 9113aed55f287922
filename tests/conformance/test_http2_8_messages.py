"""HTTP messages, RFC 9113 section 8.

The cases' numbering is RFC 7540's. In RFC 9113 its 8.1.2 is 8.2, 8.1.2.1 is 8.3, 8.1.2.2 is 8.2.2,
8.1.2.3 is 8.3.1, 8.1.2.6 is 8.1.1 and 8.2 is 8.4.

A malformed request is a stream error of type PROTOCOL_ERROR; section 8.1.1 lets a server send a
response before the RST_STREAM, but the RST_STREAM must come.
"""

from __future__ import annotations

import pytest

from . import frames as f
from .frames import AUTHORITY, END_HEADERS, END_STREAM, Code
from .peer import Address, Peer
from .script import Case, connection_error, each, response, stream_error

GET = f.request()
POST = f.request(method=b"POST")
OPEN_POST = f.headers(1, POST, END_HEADERS)
METHOD = (b":method", b"GET")
SCHEME = (b":scheme", b"http")
PATH = (b":path", b"/")
MALFORMED = stream_error(1, Code.PROTOCOL_ERROR)


def get_with(*fields: tuple[bytes, bytes]) -> bytes:
    """A GET with more fields."""
    return f.headers(1, f.request(*fields))


def fields(*all_fields: tuple[bytes, bytes]) -> bytes:
    """A request of just these fields."""
    return f.headers(1, f.block(*all_fields))


def post_of(length: bytes) -> bytes:
    """The head of a POST that says how long its body is."""
    return f.headers(1, f.request((b"content-length", length), method=b"POST"), END_HEADERS)


EXCHANGE = (
    Case("http2/8.1/1 second HEADERS without END_STREAM", OPEN_POST, f.data(1, b"test"),
         f.headers(1, f.block((b"x-test", b"ok")), END_HEADERS), MALFORMED),
    Case("http2/8.1.2/1 field name with capitals", get_with((b"X-TEST", b"ok")), MALFORMED),
    Case("http2/8.1.2.1/1 unknown pseudo-field", get_with((b":test", b"ok")), MALFORMED),
    Case("http2/8.1.2.1/2 pseudo-field of responses", get_with((b":status", b"200")), MALFORMED),
    Case("http2/8.1.2.1/3 pseudo-field in trailers", OPEN_POST, f.data(1, b"test"),
         f.headers(1, f.block((b":method", b"POST"))), MALFORMED),
    Case("http2/8.1.2.1/4 pseudo-field after a regular field",
         fields((b"x-test", b"ok"), METHOD, SCHEME, PATH, AUTHORITY), MALFORMED),
    Case("http2/8.1.2.2/1 connection", get_with((b"connection", b"keep-alive")), MALFORMED),
    Case("http2/8.1.2.2/2 te other than trailers",
         get_with((b"trailers", b"test"), (b"te", b"trailers, deflate")), MALFORMED),
    Case("http2/8.1.2.3/1 empty :path", f.headers(1, f.request(path=b"")), MALFORMED),
    Case("http2/8.1.2.3/2 no :method", fields(SCHEME, PATH, AUTHORITY), MALFORMED),
    Case("http2/8.1.2.3/3 no :scheme", fields(METHOD, PATH, AUTHORITY), MALFORMED),
    Case("http2/8.1.2.3/4 no :path", fields(METHOD, SCHEME, AUTHORITY), MALFORMED),
    Case("http2/8.1.2.3/5 two :method", fields(METHOD, SCHEME, PATH, AUTHORITY, METHOD), MALFORMED),
    Case("http2/8.1.2.3/6 two :scheme", fields(METHOD, SCHEME, PATH, AUTHORITY, SCHEME), MALFORMED),
    Case("http2/8.1.2.3/7 two :path", fields(METHOD, SCHEME, PATH, AUTHORITY, PATH), MALFORMED),
    Case("http2/8.1.2.6/1 content-length less than the DATA", post_of(b"1"),
         f.data(1, b"test", END_STREAM), MALFORMED),
    Case("http2/8.1.2.6/2 content-length less than the sum of several DATA", post_of(b"1"),
         f.data(1, b"test"), f.data(1, b"test", END_STREAM), MALFORMED),
    Case("http2/8.2/1 PUSH_PROMISE from a client", f.push_promise(1, 3, GET),
         connection_error(Code.PROTOCOL_ERROR)),
)  # fmt: skip

BODY_LENGTH = (
    Case("rfc9113/8.1.1 content-length more than the DATA", post_of(b"5"),
         f.data(1, b"test", END_STREAM), MALFORMED),
    Case("rfc9113/8.1.1 content-length without DATA", get_with((b"content-length", b"1")),
         MALFORMED),
    Case("rfc9113/8.1.1 content-length less than the DATA, trailers after it", post_of(b"1"),
         f.data(1, b"test"), f.headers(1, f.block((b"x-test", b"ok"))), MALFORMED),
    Case("rfc9113/8.1.1 content-length that fits, padding left out", post_of(b"4"),
         f.data(1, b"te", padding=9), f.data(1, b"st", END_STREAM), response(1, 200)),
    Case("rfc9113/8.1.1 content-length that is no number", post_of(b"4x"),
         f.data(1, b"test", END_STREAM), MALFORMED),
    Case("rfc9113/8.1.1 negative content-length", post_of(b"-4"), f.data(1, b"test", END_STREAM),
         MALFORMED),
    Case("rfc9113/8.1.1 two content-lengths that differ",
         get_with((b"content-length", b"0"), (b"content-length", b"1")), MALFORMED),
)  # fmt: skip

FIELDS = (
    Case("rfc9113/8.2.2 te: trailers", get_with((b"te", b"trailers")), response(1, 200)),
    Case("rfc9113/8.2.2 keep-alive", get_with((b"keep-alive", b"timeout=5")), MALFORMED),
    Case("rfc9113/8.2.2 proxy-connection", get_with((b"proxy-connection", b"close")), MALFORMED),
    Case("rfc9113/8.2.2 transfer-encoding", get_with((b"transfer-encoding", b"chunked")),
         MALFORMED),
    Case("rfc9113/8.2.2 upgrade", get_with((b"upgrade", b"h2c")), MALFORMED),
    Case("rfc9113/8.2.3 cookie in several fields",
         get_with((b"cookie", b"a=1"), (b"cookie", b"b=2")), response(1, 200)),
    Case("rfc9113/8.3 pseudo-field in trailers, unknown", OPEN_POST, f.data(1, b"test"),
         f.headers(1, f.block((b":x", b"1"))), MALFORMED),
    Case("rfc9113/8.3.1 two :authority", fields(METHOD, SCHEME, PATH, AUTHORITY, AUTHORITY),
         MALFORMED),
    Case("rfc9113/8.3.1 no :authority but host",
         fields(METHOD, SCHEME, PATH, (b"host", b"conformance.test")), response(1, 200)),
    Case("rfc9113/8.3.1 :path that is neither absolute nor *",
         f.headers(1, f.request(path=b"relative")), MALFORMED),
    Case("rfc9113/8.5 CONNECT with :path",
         fields((b":method", b"CONNECT"), PATH, AUTHORITY), MALFORMED),
    Case("rfc8441/4 :protocol with another method than CONNECT",
         fields((b":method", b"GET"), SCHEME, PATH, AUTHORITY, (b":protocol", b"websocket")),
         MALFORMED),
)  # fmt: skip


@each(EXCHANGE + BODY_LENGTH + FIELDS)
def test_messages(case: Case, server: Address) -> None:
    case.run(server)


NAMES = {
    "empty": b"",
    "space": b"x test",
    "NUL": b"x\0test",
    "LF": b"x\ntest",
    "DEL": b"x\x7ftest",
    "non-ASCII": b"x\xe9test",
    "colon": b"x:test",
    "capital in the middle": b"x-Test",
    "delimiter": b"x(test)",
}
VALUES = {
    "NUL": b"a\0b",
    "CR": b"a\rb",
    "LF": b"a\nb",
    "CRLF": b"a\r\nx-smuggled: 1",
    "leading space": b" a",
    "trailing tab": b"a\t",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_field_name_validity(server: Address, name: bytes) -> None:
    """rfc9113/8.2.1: names with octets that no field name has (RFC 9110 section 5.1)."""
    Case("", get_with((name, b"v")), MALFORMED).run(server)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_field_value_validity(server: Address, value: bytes) -> None:
    """rfc9113/8.2.1: values that would mean something else in HTTP/1.1."""
    Case("", get_with((b"x-test", value)), MALFORMED).run(server)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_trailer_value_validity(server: Address, value: bytes) -> None:
    """rfc9113/8.2.1: the same holds in trailers."""
    trailers = f.headers(1, f.block((b"x-test", value)))
    Case("", OPEN_POST, f.data(1, b"test"), trailers, MALFORMED).run(server)


@pytest.mark.parametrize("value", [b"", b"a", b"a b\tc", b"\x80\xff", b"x" * 5_000])
def test_field_value_taken(server: Address, value: bytes) -> None:
    """rfc9110/5.5: values with inner blanks and obs-text are right."""
    Case("", get_with((b"x-test", value)), response(1, 200)).run(server)


def test_malformed_request_among_others(server: Address) -> None:
    """rfc9113/5.4.2: the streams beside a malformed one are answered."""
    with Peer(server).handshake() as peer:
        peer.send(f.headers(1, GET), f.headers(3, f.request((b"X", b"1"))), f.headers(5, GET))
        assert peer.expect_response(1).status == 200
        assert peer.expect_response(5).status == 200
        peer.expect_reset(3, Code.PROTOCOL_ERROR)
