"""The rules of RFC 9113 section 8 and RFC 9110 for field sections."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.head import Fields
from gateway.wire.fields import MalformedHead, check_trailers, parse_request, parse_response

M = (b":method", b"GET")
S = (b":scheme", b"http")
P = (b":path", b"/a?b=c")
A = (b":authority", b"example.com")
GET: Fields = (M, S, P, A)

TCHARS = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


def swap(name: bytes, value: bytes) -> Fields:
    """GET with another value of one pseudo-field."""
    return tuple((n, value if n == name else v) for n, v in GET)


def without(name: bytes) -> Fields:
    return tuple(field for field in GET if field[0] != name)


def test_request_head() -> None:
    regular = ((b"accept", b"*/*"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-own", b""))
    head = parse_request(GET + regular)
    assert (head.method, head.scheme, head.authority, head.path) == (
        b"GET",
        b"http",
        b"example.com",
        b"/a?b=c",
    )
    assert head.fields == regular
    assert all(mine is theirs for mine, theirs in zip(head.fields, regular, strict=True))
    assert head.content_length == -1
    assert head.protocol is None
    assert not head.is_grpc
    assert head.grpc_timeout_s is None


MALFORMED_REQUESTS: dict[str, Fields] = {
    "empty section": (),
    "no method": without(b":method"),
    "no scheme": without(b":scheme"),
    "no path": without(b":path"),
    "empty method": swap(b":method", b""),
    "empty scheme": swap(b":scheme", b""),
    "empty path": swap(b":path", b""),
    "empty authority": swap(b":authority", b""),
    "method not a token": swap(b":method", b"GE T"),
    "scheme with a colon": swap(b":scheme", b"ht:tp"),
    "scheme begins with a digit": swap(b":scheme", b"1http"),
    "relative path": swap(b":path", b"a"),
    "asterisk without OPTIONS": swap(b":path", b"*"),
    "absolute form": swap(b":path", b"http://example.com/"),
    "space in path": swap(b":path", b"/a HTTP/1.1"),
    "tab in path": swap(b":path", b"/a\tb"),
    "DEL in path": swap(b":path", b"/\x7f"),
    "fragment": swap(b":path", b"/a#b"),
    "userinfo": swap(b":authority", b"user@example.com"),
    "slash in authority": swap(b":authority", b"example.com/x"),
    "space in authority": swap(b":authority", b"example. com"),
    "LF in path": swap(b":path", b"/\n"),
    "NUL in method": swap(b":method", b"GET\0"),
    "CR in authority": swap(b":authority", b"a\r"),
    "duplicate method": (M, *GET),
    "duplicate scheme": (S, *GET),
    "duplicate path": (P, *GET),
    "duplicate authority": (A, *GET),
    "pseudo after regular": (M, S, P, (b"accept", b"*/*"), A),
    "unknown pseudo": (*GET, (b":unknown", b"x")),
    "status in a request": (*GET, (b":status", b"200")),
    "protocol without extended connect": (*GET, (b":protocol", b"websocket")),
    "colon alone": (*GET, (b":", b"x")),
    "empty name": (*GET, (b"", b"x")),
    "upper-case name": (*GET, (b"X-Own", b"x")),
    "colon in name": (*GET, (b"x:y", b"x")),
    "connection": (*GET, (b"connection", b"close")),
    "proxy-connection": (*GET, (b"proxy-connection", b"close")),
    "keep-alive": (*GET, (b"keep-alive", b"timeout=1")),
    "transfer-encoding": (*GET, (b"transfer-encoding", b"chunked")),
    "upgrade": (*GET, (b"upgrade", b"h2c")),
    "te": (*GET, (b"te", b"gzip")),
    "te list": (*GET, (b"te", b"trailers, deflate;q=0.5")),
    "empty te": (*GET, (b"te", b"")),
    "leading space": (*GET, (b"x-own", b" a")),
    "leading tab": (*GET, (b"accept", b"\ta")),
    "trailing space": (*GET, (b"accept", b"a ")),
    "trailing tab": (*GET, (b"x-own", b"a\t")),
    "only a space": (*GET, (b"x-own", b" ")),
    "NUL in value": (*GET, (b"x-own", b"a\0b")),
    "CR in value": (*GET, (b"accept", b"a\rb")),
    "LF in value": (*GET, (b"accept", b"a\nb")),
    "LF ends value": (*GET, (b"accept", b"a\n")),
    "host differs": (*GET, (b"host", b"other.example")),
    "empty host": (*GET, (b"host", b"")),
    "empty host alone": (*without(b":authority"), (b"host", b"")),
    "invalid host alone": (*without(b":authority"), (b"host", b"a@b")),
    "duplicate host": (*GET, (b"host", b"example.com"), (b"host", b"example.com")),
    "content-length empty": (*GET, (b"content-length", b"")),
    "content-length sign": (*GET, (b"content-length", b"+1")),
    "content-length hex": (*GET, (b"content-length", b"0x1")),
    "content-length list": (*GET, (b"content-length", b"1, 1")),
    "content-length huge": (*GET, (b"content-length", b"9" * 30)),
    "content-length non-ascii digit": (*GET, (b"content-length", "\u0661".encode())),
    "content-lengths differ": (*GET, (b"content-length", b"1"), (b"content-length", b"2")),
    "grpc-timeout": (*GET, (b"grpc-timeout", b"1")),
    "grpc-timeout twice": (*GET, (b"grpc-timeout", b"1S"), (b"grpc-timeout", b"1S")),
    "CONNECT with path": ((b":method", b"CONNECT"), (b":authority", b"a:1"), P),
    "CONNECT with scheme": ((b":method", b"CONNECT"), (b":authority", b"a:1"), S),
    "CONNECT without authority": ((b":method", b"CONNECT"),),
    "CONNECT without port": ((b":method", b"CONNECT"), (b":authority", b"example.com")),
    "CONNECT with empty port": ((b":method", b"CONNECT"), (b":authority", b"example.com:")),
    "CONNECT with port 0": ((b":method", b"CONNECT"), (b":authority", b"example.com:0")),
    "CONNECT with a big port": ((b":method", b"CONNECT"), (b":authority", b"a:65536")),
    "CONNECT without host": ((b":method", b"CONNECT"), (b":authority", b":443")),
}


@pytest.mark.parametrize("fields", MALFORMED_REQUESTS.values(), ids=MALFORMED_REQUESTS)
def test_malformed_request(fields: Fields) -> None:
    with pytest.raises(MalformedHead) as caught:
        parse_request(fields)
    reason = caught.value.reason
    assert reason
    assert str(caught.value) == reason
    assert reason.isascii()
    assert reason.isprintable()
    assert len(reason) < 300


@pytest.mark.parametrize("byte", range(256))
def test_each_octet_of_a_name(byte: int) -> None:
    name = b"x" + bytes((byte,)) + b"y"
    if byte in TCHARS:
        assert parse_request((*GET, (name, b"v"))).get(name) == b"v"
        check_trailers(((name, b"v"),))
        assert parse_response(((b":status", b"200"), (name, b"v"))).get(name) == b"v"
    else:
        for check in (
            lambda: parse_request((*GET, (name, b"v"))),
            lambda: check_trailers(((name, b"v"),)),
            lambda: parse_response(((b":status", b"200"), (name, b"v"))),
        ):
            with pytest.raises(MalformedHead):
                check()


@pytest.mark.parametrize("byte", range(256))
@pytest.mark.parametrize("name", [b"accept", b"x-own"])
def test_each_octet_of_a_value(byte: int, name: bytes) -> None:
    octet = bytes((byte,))
    for value, bad in (
        (b"a" + octet + b"b", b"\0\r\n"),
        (octet + b"b", b"\0\r\n \t"),
        (b"a" + octet, b"\0\r\n \t"),
        (octet, b"\0\r\n \t"),
    ):
        for check in (
            lambda value=value: parse_request((*GET, (name, value))),
            lambda value=value: check_trailers(((name, value),)),
            lambda value=value: parse_response(((b":status", b"200"), (name, value))),
        ):
            if byte in bad:
                with pytest.raises(MalformedHead):
                    check()
            else:
                check()


@pytest.mark.parametrize("byte", range(256))
def test_each_octet_of_a_path(byte: int) -> None:
    fields = swap(b":path", b"/a" + bytes((byte,)) + b"b")
    if byte <= 0x20 or byte in b"\x7f#":
        with pytest.raises(MalformedHead):
            parse_request(fields)
    else:
        parse_request(fields)


@pytest.mark.parametrize(
    "method", [b"POST", b"PROPFIND", b"get", b"M-SEARCH", b"!#$%&'*+-.^_`|~09azAZ"]
)
def test_methods(method: bytes) -> None:
    assert parse_request(swap(b":method", method)).method == method


def test_asterisk_goes_with_options() -> None:
    fields = ((b":method", b"OPTIONS"), S, (b":path", b"*"), A)
    assert parse_request(fields).path == b"*"


def test_other_schemes() -> None:
    assert parse_request(swap(b":scheme", b"HTTPS")).scheme == b"https"
    assert parse_request(((b":method", b"GET"), (b":scheme", b"coap+tcp"), (b":path", b"x"))).path
    with pytest.raises(MalformedHead):
        parse_request(((b":method", b"GET"), (b":scheme", b"HTTP"), (b":path", b"x")))


@pytest.mark.parametrize("authority", [b"a", b"a:80", b"[::1]:443", b"%2ftmp%2fs.sock", b"x_y.z"])
def test_authorities(authority: bytes) -> None:
    assert parse_request(swap(b":authority", authority)).authority == authority


def test_no_authority_at_all() -> None:
    assert parse_request(without(b":authority")).authority == b""


def test_host_stands_in_for_authority() -> None:
    head = parse_request((*without(b":authority"), (b"host", b"h.example:81")))
    assert head.authority == b"h.example:81"


@pytest.mark.parametrize(
    ("scheme", "authority", "host", "same"),
    [
        (b"http", b"example.com", b"example.com", True),
        (b"http", b"Example.com", b"example.COM", True),
        (b"http", b"example.com:80", b"example.com", True),
        (b"http", b"example.com", b"example.com:80", True),
        (b"https", b"example.com", b"example.com:443", True),
        (b"https", b"example.com", b"example.com:80", False),
        (b"http", b"example.com", b"example.com:81", False),
        (b"http", b"example.com", b"example.co", False),
    ],
)
def test_host_and_authority(scheme: bytes, authority: bytes, host: bytes, same: bool) -> None:
    fields = (M, (b":scheme", scheme), P, (b":authority", authority), (b"host", host))
    if same:
        assert parse_request(fields).authority == authority
    else:
        with pytest.raises(MalformedHead, match="differ"):
            parse_request(fields)


def test_connect() -> None:
    head = parse_request(((b":method", b"CONNECT"), (b":authority", b"[::1]:443")))
    assert (head.authority, head.scheme, head.path) == (b"[::1]:443", b"", b"")


EXTENDED: Fields = ((b":method", b"CONNECT"), (b":protocol", b"websocket"), S, P, A)


def test_extended_connect() -> None:
    head = parse_request(EXTENDED, extended_connect=True)
    assert head.protocol == b"websocket"
    assert (head.scheme, head.path, head.authority) == (b"http", b"/a?b=c", b"example.com")
    # Plain CONNECT keeps its rules where the extension is on.
    assert (
        parse_request(
            ((b":method", b"CONNECT"), (b":authority", b"a:1")), extended_connect=True
        ).protocol
        is None
    )


@pytest.mark.parametrize("missing", [b":scheme", b":path", b":authority"])
def test_extended_connect_needs_the_rest(missing: bytes) -> None:
    with pytest.raises(MalformedHead):
        parse_request(tuple(f for f in EXTENDED if f[0] != missing), extended_connect=True)


@pytest.mark.parametrize(
    "fields",
    [
        (*EXTENDED, (b":protocol", b"websocket")),
        (M, *EXTENDED[1:]),
        (EXTENDED[0], (b":protocol", b""), S, P, A),
        (EXTENDED[0], (b":protocol", b"a b"), S, P, A),
    ],
    ids=["duplicate", "not CONNECT", "empty", "not a token"],
)
def test_malformed_extended_connect(fields: Fields) -> None:
    with pytest.raises(MalformedHead):
        parse_request(fields, extended_connect=True)


def test_extended_connect_has_to_be_on() -> None:
    with pytest.raises(MalformedHead, match="pseudo-field"):
        parse_request(EXTENDED)


@pytest.mark.parametrize("value", [b"trailers", b"Trailers"])
def test_te_trailers(value: bytes) -> None:
    assert parse_request((*GET, (b"te", value))).get(b"te") == value


@pytest.mark.parametrize(("value", "length"), [(b"0", 0), (b"42", 42), (b"007", 7)])
def test_content_length(value: bytes, length: int) -> None:
    assert parse_request((*GET, (b"content-length", value))).content_length == length
    response = parse_response(((b":status", b"200"), (b"content-length", value)))
    assert response.content_length == length


def test_equal_content_lengths_are_folded() -> None:
    twice = ((b"content-length", b"5"), (b"x-own", b"1"), (b"content-length", b"5"))
    once = ((b"content-length", b"5"), (b"x-own", b"1"))
    head = parse_request(GET + twice)
    assert (head.content_length, head.fields) == (5, once)
    response = parse_response(((b":status", b"200"), *twice))
    assert (response.content_length, response.fields) == (5, once)


@pytest.mark.parametrize(
    ("content_type", "is_grpc"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc+json", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc ; x=y", True),
        (b"Application/GRPC+Proto", True),
        (b"application/grpc-web", False),
        (b"application/grpc-web+proto", False),
        (b"application/grpcx", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_is_grpc(content_type: bytes, is_grpc: bool) -> None:
    assert parse_request((*GET, (b"content-type", content_type))).is_grpc is is_grpc


def test_grpc_timeout() -> None:
    assert parse_request((*GET, (b"grpc-timeout", b"1500m"))).grpc_timeout_s == 1.5


def test_response_head() -> None:
    head = parse_response(((b":status", b"204"), (b"server", b"x"), (b"x-own", b"y")))
    assert head.status == 204
    assert head.fields == ((b"server", b"x"), (b"x-own", b"y"))
    assert head.content_length == -1


@pytest.mark.parametrize("status", [b"100", b"103", b"200", b"418", b"599"])
def test_statuses(status: bytes) -> None:
    assert parse_response(((b":status", status),)).status == int(status)


MALFORMED_RESPONSES: dict[str, Fields] = {
    "empty section": (),
    "no status": ((b"server", b"x"),),
    "status after a field": ((b"server", b"x"), (b":status", b"200")),
    "duplicate status": ((b":status", b"200"), (b":status", b"200")),
    "path in a response": ((b":status", b"200"), (b":path", b"/")),
    "unknown pseudo": ((b":status", b"200"), (b":reason", b"OK")),
    "101": ((b":status", b"101"),),
    "099": ((b":status", b"099"),),
    "600": ((b":status", b"600"),),
    "two digits": ((b":status", b"20"),),
    "four digits": ((b":status", b"2000"),),
    "empty status": ((b":status", b""),),
    "letters": ((b":status", b"2xx"),),
    "spaces": ((b":status", b" 20"),),
    "connection": ((b":status", b"200"), (b"connection", b"close")),
    "transfer-encoding": ((b":status", b"200"), (b"transfer-encoding", b"chunked")),
    "te": ((b":status", b"200"), (b"te", b"gzip")),
    "upper case": ((b":status", b"200"), (b"Server", b"x")),
    "LF": ((b":status", b"200"), (b"server", b"x\ny")),
    "trailing space": ((b":status", b"200"), (b"server", b"x ")),
    "content-length": ((b":status", b"200"), (b"content-length", b"-1")),
}


@pytest.mark.parametrize("fields", MALFORMED_RESPONSES.values(), ids=MALFORMED_RESPONSES)
def test_malformed_response(fields: Fields) -> None:
    with pytest.raises(MalformedHead):
        parse_response(fields)


def test_trailers() -> None:
    check_trailers(())
    check_trailers(((b"grpc-status", b"0"), (b"x-own-bin", b"AA=="), (b"server", b"x")))


@pytest.mark.parametrize(
    "field",
    [
        (b":status", b"200"),
        (b":path", b"/"),
        (b":unknown", b"x"),
        (b"", b"x"),
        (b"X", b"x"),
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"gzip"),
        (b"grpc-message", b"a\r\nb"),
        (b"grpc-message", b" a"),
    ],
)
def test_malformed_trailers(field: tuple[bytes, bytes]) -> None:
    check_trailers(((b"grpc-status", b"0"),))
    with pytest.raises(MalformedHead):
        check_trailers(((b"grpc-status", b"0"), field))


names = st.binary(max_size=4) | st.sampled_from(
    b":method :scheme :path :authority :protocol :status host te content-length content-type "
    b"grpc-timeout connection accept".split()
)
values = st.sampled_from(
    [b"GET", b"CONNECT", b"http", b"/", b"a:1", b"a", b"1", b"1S", b"200", b"trailers"]
) | st.binary(max_size=4)


def reason_of(check: Callable[[], object]) -> str | None:
    """Why ``check`` finds the fields malformed, or None; nothing else may be raised."""
    try:
        check()
    except MalformedHead as error:
        return error.reason
    return None


@given(st.lists(st.tuples(names, values), max_size=8), st.booleans())
def test_any_section_is_a_head_or_malformed(
    fields: list[tuple[bytes, bytes]], extended_connect: bool
) -> None:
    """Nothing else is raised, and what passes keeps the promises of a head."""
    section = tuple(fields)
    reason = reason_of(lambda: parse_request(section, extended_connect=extended_connect))
    if reason is None:
        head = parse_request(section, extended_connect=extended_connect)
        assert head.method
        assert head.path or head.method == b"CONNECT"
        for name, value in head.fields:
            assert TCHARS.issuperset(name)
            assert value == value.strip(b" \t")
            assert not frozenset(value) & frozenset(b"\0\r\n")
    else:
        assert reason.isprintable()
    reason_of(lambda: parse_response(section))
    reason_of(lambda: check_trailers(section))
