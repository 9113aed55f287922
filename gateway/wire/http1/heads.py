"""Field sections of HTTP/1.1: octets to heads (RFC 9112 sections 2 to 5).

llhttp parses, by httptools, with its strict defaults. A parser is made for each section and given
all of it at once, so nothing of one message can leak into the reading of the next. What llhttp lets
pass and another program might read differently is refused here, before or after:

- LF without CR or CR without LF, and an empty line before the section's first;
- more than single spaces in the request line, a version other than HTTP/1.0 and HTTP/1.1, ``#`` in
  the target, ``transfer-encoding`` other than exactly ``chunked`` or in HTTP/1.0;
- more or less than one ``host``, a target of another form than the method has;
- a ``connection`` field that takes away what frames or addresses the message.

The rules that HTTP/2 has too (names, values, authority, content-length) are those of
:mod:`gateway.wire.fields`, by the same code: a request line becomes pseudo-fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

from gateway.head import Field, Fields, RequestHead, ResponseHead
from gateway.wire.fields import MalformedHead, check_trailers, parse_request, parse_response


class TooManyFields(MalformedHead):
    """More fields than the limit."""


class UnsupportedVersion(MalformedHead):
    """A version that is neither HTTP/1.0 nor HTTP/1.1."""


class Http1Request:
    """A request head, and what it says of the connection and the body.

    ``minor`` is that of the version, 0 or 1. ``te_trailers`` says that the client takes trailers.
    """

    __slots__ = ("chunked", "expects_continue", "head", "keep_alive", "minor", "te_trailers")

    def __init__(
        self,
        head: RequestHead,
        *,
        minor: int,
        keep_alive: bool,
        chunked: bool,
        te_trailers: bool,
        expects_continue: bool,
    ) -> None:
        self.head = head
        self.minor = minor
        self.keep_alive = keep_alive
        self.chunked = chunked
        self.te_trailers = te_trailers
        self.expects_continue = expects_continue


class Http1Response:
    """A response head, and what it says of the connection and the body.

    ``upgrade`` is the protocol named by ``upgrade`` with status 101, in lower case.
    """

    __slots__ = ("chunked", "head", "keep_alive", "minor", "upgrade")

    def __init__(
        self,
        head: ResponseHead,
        *,
        minor: int,
        keep_alive: bool,
        chunked: bool,
        upgrade: bytes | None,
    ) -> None:
        self.head = head
        self.minor = minor
        self.keep_alive = keep_alive
        self.chunked = chunked
        self.upgrade = upgrade


_UPPER_KNOWN: Final = (
    b"Host User-Agent Accept Accept-Encoding Accept-Language Connection Content-Type "
    b"Content-Length Transfer-Encoding Authorization Cookie TE Upgrade Expect Origin Referer Date "
    b"Server Cache-Control Keep-Alive X-Request-Id X-Forwarded-For X-Forwarded-Proto"
).split()
# Spellings of field names and the names: what is often met is not made anew. Bounded: spellings
# of peers are added up to a limit.
_NAMES: dict[bytes, bytes] = cython.declare(dict, {name: name.lower() for name in _UPPER_KNOWN})
_MAX_NAMES: int = cython.declare(cython.Py_ssize_t, 1024)
_MAX_NAME: int = cython.declare(cython.Py_ssize_t, 64)

# What these do is for this connection alone (RFC 9110 section 7.6.1).
_CONNECTION_FIELDS: frozenset[bytes] = cython.declare(
    frozenset,
    frozenset(
        (
            b"connection",
            b"keep-alive",
            b"proxy-connection",
            b"transfer-encoding",
            b"upgrade",
            b"http2-settings",
        )
    ),
)
# Taking one of these away would change what the message is.
_NOT_TO_NOMINATE: frozenset[bytes] = cython.declare(
    frozenset, frozenset((b"host", b"content-length", b"content-type", b"content-encoding"))
)


class _Collector:
    """What a parser calls."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.target = b""

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = _NAMES.get(name)
        if lower is None:
            lower = name.lower()
            if len(_NAMES) < _MAX_NAMES and len(name) <= _MAX_NAME:
                _NAMES[name] = lower
        self.fields.append((lower, value.strip(b" \t")))


def _check_lines(octets: bytes) -> None:
    """Refuse CR and LF that do not stand together, and what begins with an empty line."""
    lines: cython.Py_ssize_t = octets.count(b"\r\n")
    if octets.count(b"\n") != lines or octets.count(b"\r") != lines:
        raise MalformedHead("CR or LF alone")
    if octets.startswith(b"\r\n"):
        raise MalformedHead("an empty line before the first line")


def _feed(parser: Any, octets: bytes) -> None:
    try:
        parser.feed_data(octets)
    except HttpParserUpgrade:
        pass  # what follows is for whoever reads the head to know
    except HttpParserError as error:
        raise MalformedHead(str(error)) from None


class _Connection:
    """What the fields say of the connection: ``fields`` is what is left without those."""

    def __init__(self, fields: list[Field], minor: int) -> None:
        options: list[bytes] = []
        codings: list[bytes] = []
        self.upgrade: bytes | None = None
        self.te = b""
        special = False
        for name, value in fields:
            if name == b"connection":
                options += [option.strip(b" \t").lower() for option in value.split(b",")]
                special = True
            elif name == b"transfer-encoding":
                codings.append(value)
                special = True
            elif name == b"upgrade":
                self.upgrade = (
                    value.lower() if self.upgrade is None else self.upgrade + b", " + value.lower()
                )
                special = True
            elif name in _CONNECTION_FIELDS or name == b"te":
                if name == b"te":
                    self.te += b"," + value
                special = True
        self.chunked = False
        if codings:
            if len(codings) > 1 or codings[0].lower() != b"chunked":
                raise MalformedHead("transfer-encoding is not exactly chunked")
            if minor == 0:
                raise MalformedHead("transfer-encoding in HTTP/1.0")
            self.chunked = True
        if b"close" in options:
            self.keep_alive = False
        else:
            self.keep_alive = minor == 1 or b"keep-alive" in options
        if b"upgrade" not in options:
            self.upgrade = None
        self.trailers = any(
            member.partition(b";")[0].strip(b" \t").lower() == b"trailers"
            for member in self.te.split(b",")
        )
        self.fields = fields
        if special:
            for option in options:
                if option in _NOT_TO_NOMINATE:
                    raise MalformedHead("connection names a field that frames the message")
            drop = _CONNECTION_FIELDS.union(options)
            self.fields = [field for field in fields if field[0] not in drop and field[0] != b"te"]
            if self.trailers:
                self.fields.append((b"te", b"trailers"))


def read_request(octets: bytes, scheme: bytes, max_fields: int) -> Http1Request:
    """The request of a section that ends with its empty line.

    Raises MalformedHead, or its subclasses TooManyFields and UnsupportedVersion.
    """
    _check_lines(octets)
    line: bytes = octets[: octets.find(b"\r\n")]
    parts = line.split(b" ")
    if len(parts) != 3:
        raise MalformedHead("the request line is not method, target and version")
    method: bytes = parts[0]
    version: bytes = parts[2]
    if version != b"HTTP/1.1" and version != b"HTTP/1.0":
        if version.startswith(b"HTTP/") and len(version) == 8:
            raise UnsupportedVersion("the version is neither HTTP/1.0 nor HTTP/1.1")
        raise MalformedHead("the request line does not end with a version")
    minor: cython.int = 1 if version == b"HTTP/1.1" else 0
    if octets.count(b"\n") - 2 > max_fields:
        raise TooManyFields("more fields than http1.max_fields")
    collector = _Collector()
    _feed(HttpRequestParser(collector), octets)
    if collector.target != parts[1]:
        raise MalformedHead("the request target is not what stands between two spaces")
    said = _Connection(collector.fields, minor)
    fields = said.fields
    authority: bytes | None = None
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1:
        raise MalformedHead("more than one host (RFC 9112 section 3.2)")
    if not hosts and minor == 1:
        raise MalformedHead("no host (RFC 9112 section 3.2)")
    target: bytes = parts[1]
    if method == b"CONNECT":
        return _request(
            ((b":method", method), (b":authority", target)), fields, said, minor, hosts, False
        )
    if target[:1] == b"/" or target == b"*":
        path = target
        if hosts and hosts[0]:
            authority = hosts[0]
    else:
        path, authority = _absolute(target)
    pseudo: list[Field] = [(b":method", method), (b":scheme", scheme)]
    if authority is not None:
        pseudo.append((b":authority", authority))
    pseudo.append((b":path", path))
    websocket = (
        said.upgrade == b"websocket"
        and method == b"GET"
        and minor == 1
        and not said.chunked
        and authority is not None
    )
    return _request(tuple(pseudo), fields, said, minor, hosts, websocket)


def _absolute(target: bytes) -> tuple[bytes, bytes]:
    """Path and authority of a target in absolute form (RFC 9112 section 3.2.2)."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise MalformedHead("the request target is neither a path nor an http URI")
    end = len(rest)
    for mark in (b"/", b"?"):
        at = rest.find(mark)
        if 0 <= at < end:
            end = at
    path = rest[end:]
    if path[:1] != b"/":
        path = b"/" + path
    return path, rest[:end]


def _request(
    pseudo: Fields,
    fields: list[Field],
    said: _Connection,
    minor: int,
    hosts: list[bytes],
    websocket: bool,
) -> Http1Request:
    if hosts:
        fields = [field for field in fields if field[0] != b"host"]
    head = parse_request((*pseudo, *fields))
    if head.content_length > 0:
        websocket = False
    if websocket and (
        head.get(b"sec-websocket-key") is None or head.get(b"sec-websocket-version") is None
    ):
        websocket = False
    if websocket:
        head = head.with_protocol(b"websocket")
    expect = head.get(b"expect")
    return Http1Request(
        head,
        minor=minor,
        keep_alive=said.keep_alive,
        chunked=said.chunked,
        te_trailers=said.trailers,
        expects_continue=expect is not None and expect.lower() == b"100-continue" and minor == 1,
    )


def read_response(octets: bytes, max_fields: int) -> Http1Response:
    """The response of a section that ends with its empty line. Raises MalformedHead."""
    _check_lines(octets)
    if octets.startswith(b"HTTP/1.1 "):
        minor: cython.int = 1
    elif octets.startswith(b"HTTP/1.0 "):
        minor = 0
    else:
        raise UnsupportedVersion("the version is neither HTTP/1.0 nor HTTP/1.1")
    status: bytes = octets[9:12]
    if octets.count(b"\n") - 2 > max_fields:
        raise TooManyFields("more fields than http1.max_fields")
    collector = _Collector()
    _feed(HttpResponseParser(collector), octets)
    said = _Connection(collector.fields, minor)
    upgrade: bytes | None = None
    if status == b"101":
        # HTTP/2 has no such status, so its rules are asked with another one.
        upgrade = said.upgrade
        head = parse_response(((b":status", b"100"), *said.fields))
        head = ResponseHead(101, head.fields)
    else:
        head = parse_response(((b":status", status), *said.fields))
    if said.chunked and head.content_length >= 0:
        raise MalformedHead("both content-length and transfer-encoding")
    return Http1Response(
        head, minor=minor, keep_alive=said.keep_alive, chunked=said.chunked, upgrade=upgrade
    )


def read_trailers(octets: bytes, max_fields: int) -> Fields:
    """The fields of a trailer section, its empty line included. Raises MalformedHead.

    Fields that would frame, route or authenticate a message are left out (RFC 9110 section 6.5.1).
    """
    if octets == b"\r\n":
        return ()
    _check_lines(octets)
    if octets.count(b"\n") - 1 > max_fields:
        raise TooManyFields("more trailers than http1.max_fields")
    collector = _Collector()
    # To the parser it is the section of a request.
    _feed(HttpRequestParser(collector), b"GET / HTTP/1.1\r\n" + octets)
    fields = tuple([field for field in collector.fields if field[0] not in _NO_TRAILERS])
    check_trailers(fields)
    return fields


_NO_TRAILERS: frozenset[bytes] = cython.declare(
    frozenset,
    _CONNECTION_FIELDS.union(
        (
            b"te",
            b"trailer",
            b"host",
            b"content-length",
            b"content-type",
            b"content-encoding",
            b"content-range",
            b"authorization",
            b"proxy-authorization",
            b"cookie",
            b"set-cookie",
            b"expect",
            b"cache-control",
            b"max-forwards",
            b"range",
        )
    ),
)
