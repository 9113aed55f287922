"""The rules for field sections: what RFC 9113 section 8 and RFC 9110 ask of a header block.

A decoded block is a tuple of ``(name, value)`` pairs. It becomes a head here, or a
:class:`MalformedHead`: a malformed message is a stream error of type PROTOCOL_ERROR (RFC 9113
section 8.1.1), never a connection error, and never forwarded. What is checked:

- names are lower-case tokens (8.2.1, RFC 9110 section 5.6.2); pseudo-fields are known, single and
  before all others (8.3);
- values hold no NUL, CR or LF and neither begin nor end with SP or HTAB (8.2.1);
- connection-specific fields are absent, ``te`` says ``trailers`` or nothing (8.2.2);
- requests have what their method needs (8.3.1; CONNECT: 8.5 and RFC 8441), ``:path`` and
  ``:authority`` hold only what a request line of HTTP/1.1 could hold, so that nothing can be
  smuggled through a later hop, and ``host`` names the same entity as ``:authority``;
- responses have one ``:status`` (8.3.2), never 101 (8.6);
- ``content-length`` is one number (RFC 9110 section 8.6); that DATA adds up to it is for the
  stream to check.

Control characters other than those three are let through in values, as RFC 9110 section 5.5
allows, and cookie crumbs stay apart (8.2.3 joins them only towards HTTP/1.1).

Nothing here is per connection. The cost per block matters where blocks differ from request to
request, so the checks are made of few calls that each run in C over many bytes: one translation
of all values together, one dictionary look-up per name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.head import Field, Fields, RequestHead, ResponseHead
from gateway.wire.grpc import parse_timeout


class MalformedHead(Exception):
    """A field section that breaks the rules; ``reason`` is a short sentence for the peer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _identity_for(allowed: bytes) -> bytes:
    """A translation table that keeps ``allowed`` and changes every other byte.

    ``value.translate(table) == value`` then says, in one pass in C, that all of it is allowed.
    """
    keep = frozenset(allowed)
    return bytes(byte if byte in keep else byte ^ 0xFF for byte in range(256))


_DIGITS: Final = b"0123456789"
_LOWER: Final = b"abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_TCHAR_SYMBOLS: Final = b"!#$%&'*+-.^_`|~"

_TOKEN: bytes = cython.declare(bytes, _identity_for(_TCHAR_SYMBOLS + _DIGITS + _LOWER + _UPPER))
_NAME: bytes = cython.declare(bytes, _identity_for(_TCHAR_SYMBOLS + _DIGITS + _LOWER))
_SCHEME: bytes = cython.declare(bytes, _identity_for(_DIGITS + _LOWER + b"+-."))
# reg-name, IP literals and ports of RFC 3986; no userinfo (RFC 9113 section 8.3.1).
_AUTHORITY: bytes = cython.declare(
    bytes, _identity_for(_DIGITS + _LOWER + _UPPER + b"-._~%!$&'()*+,;=:[]")
)
# No space, control or fragment; bytes above 0x7F pass, as they do in nghttp2 and nginx.
_PATH: bytes = cython.declare(
    bytes, _identity_for(bytes(byte for byte in range(0x21, 0x100) if byte not in b"\x7f#"))
)
_VALUE: bytes = cython.declare(
    bytes, _identity_for(bytes(byte for byte in range(0x100) if byte not in b"\0\r\n"))
)

# What a regular field name asks for. Names that are not listed are checked byte by byte and then
# count as plain; the table is fixed, so that no peer can grow it. The order matters: all below
# _HOST but _PLAIN go to _check_unusual().
_UNLISTED: int = cython.declare(cython.longlong, -1)
_PLAIN: int = cython.declare(cython.longlong, 0)
_FORBIDDEN: int = cython.declare(cython.longlong, 1)
_TE: int = cython.declare(cython.longlong, 2)
_HOST: int = cython.declare(cython.longlong, 3)
_CONTENT_LENGTH: int = cython.declare(cython.longlong, 4)
_CONTENT_TYPE: int = cython.declare(cython.longlong, 5)
_GRPC_TIMEOUT: int = cython.declare(cython.longlong, 6)

_PLAIN_NAMES: Final = (
    b"accept accept-charset accept-encoding accept-language accept-ranges age allow alt-svc "
    b"authorization cache-control content-disposition content-encoding content-language "
    b"content-location content-range cookie date etag expect expires forwarded from "
    b"grpc-accept-encoding grpc-encoding grpc-message grpc-message-type "
    b"grpc-previous-rpc-attempts grpc-status grpc-status-details-bin grpc-tags-bin "
    b"grpc-trace-bin if-match if-modified-since if-none-match if-range if-unmodified-since "
    b"last-modified link location max-forwards origin pragma priority proxy-authenticate "
    b"proxy-authorization range referer refresh retry-after server server-timing set-cookie "
    b"strict-transport-security traceparent tracestate trailer user-agent vary via "
    b"www-authenticate x-api-key x-forwarded-for x-forwarded-host x-forwarded-proto "
    b"x-request-id x-session-id"
).split()
_RULES: dict[bytes, int] = cython.declare(
    dict,
    {
        **dict.fromkeys(_PLAIN_NAMES, 0),
        b"connection": 1,
        b"proxy-connection": 1,
        b"keep-alive": 1,
        b"transfer-encoding": 1,
        b"upgrade": 1,
        b"te": 2,
        b"host": 3,
        b"content-length": 4,
        b"content-type": 5,
        b"grpc-timeout": 6,
    },
)

_METHODS: frozenset[bytes] = cython.declare(
    frozenset,
    frozenset(
        (b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")
    ),
)
_MAX_LENGTH_DIGITS: Final = 18
"""Of a content-length: what surely fits in 63 bits (an exabyte)."""


def _shown(octets: bytes) -> str:
    """Octets of the peer for a message: printable, in quotes and not long."""
    text = ascii(octets[:48])[1:]
    return text + "..." if len(octets) > 48 else text


def _check_edges(name: bytes, value: bytes) -> None:
    """Refuse SP and HTAB at either end. For values that ``strip()`` changes: that is the cheap
    test, and takes other control characters away too."""
    if value.strip(b" \t") != value:
        raise MalformedHead(f"value of {_shown(name)} begins or ends with whitespace")


def _check_unusual(name: bytes, value: bytes, rule: int) -> None:
    """Check a name that is not in the table, or refuse or check what the table says."""
    if rule == _UNLISTED:
        if not name or name.translate(_NAME) != name:
            raise MalformedHead(_name_fault(name))
    elif rule == _FORBIDDEN:
        raise MalformedHead(f"connection-specific field {_shown(name)}")
    elif rule == _TE and value != b"trailers" and value.lower() != b"trailers":
        raise MalformedHead("te says something other than trailers")


def _name_fault(name: bytes) -> str:
    if not name:
        return "empty field name"
    if name[0] == 0x3A:
        known = name in (b":method", b":scheme", b":authority", b":path", b":status", b":protocol")
        return f"{'misplaced' if known else 'unknown'} pseudo-field {_shown(name)}"
    if name.lower() != name:
        return f"upper-case letter in field name {_shown(name)}"
    return f"field name {_shown(name)} is not a token"


def _check_values(fields: Fields) -> None:
    """Refuse NUL, CR and LF anywhere in the values."""
    octets: bytes = b"".join([field[1] for field in fields])
    if octets.translate(_VALUE) != octets:
        for name, value in fields:
            if value.translate(_VALUE) != value:
                raise MalformedHead(f"value of {_shown(name)} contains NUL, CR or LF")


def _content_length(value: bytes, earlier: int) -> int:
    """The number; ``earlier`` is that of an earlier content-length field, or -1."""
    if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
        raise MalformedHead(f"content-length {_shown(value)} is not a length")
    length = int(value)
    if earlier not in (-1, length):
        raise MalformedHead("content-length fields that differ")
    return length


def _fold_content_length(fields: Fields) -> Fields:
    """The fields with only the first of several content-length fields (all equal)."""
    folded: list[Field] = []
    seen = False
    for field in fields:
        if field[0] == b"content-length":
            if seen:
                continue
            seen = True
        folded.append(field)
    return tuple(folded)


def _is_grpc(content_type: bytes) -> bool:
    """Whether it is ``application/grpc``, or that with ``+format`` or parameters."""
    lower = content_type.lower()
    return lower.startswith(b"application/grpc") and lower[16:17] in (b"", b"+", b";", b" ", b"\t")


def _entity(authority: bytes, scheme: bytes | None) -> bytes:
    """What an authority identifies, for comparing two: lower case, without the default port."""
    lower = authority.lower()
    if scheme == b"http":
        return lower.removesuffix(b":80")
    if scheme == b"https":
        return lower.removesuffix(b":443")
    return lower


def _check_connect(authority: bytes, scheme: bytes | None, path: bytes | None) -> None:
    """CONNECT has no ``:scheme`` and ``:path`` (RFC 9113 section 8.5); its ``:authority`` is a
    host and a port, both there (RFC 9110 section 9.3.6)."""
    if scheme is not None or path is not None:
        raise MalformedHead("CONNECT with :scheme or :path")
    host, colon, port = authority.rpartition(b":")
    if not (colon and host and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise MalformedHead(":authority of CONNECT is not host:port")


def _check_extended_connect(method: bytes, authority: bytes, protocol: bytes) -> None:
    """RFC 8441 section 4: ``:protocol`` goes with CONNECT, and the rest as for other methods."""
    if method != b"CONNECT":
        raise MalformedHead(":protocol without CONNECT")
    if not protocol or protocol.translate(_TOKEN) != protocol:
        raise MalformedHead(":protocol is not a token")
    if not authority:
        raise MalformedHead("no :authority")


def _scheme(scheme: bytes) -> bytes:
    """A scheme other than the two usual spellings: checked, in lower case (RFC 3986 3.1)."""
    lower = scheme.lower()
    if not lower[:1].isalpha() or lower.translate(_SCHEME) != lower:
        raise MalformedHead(f":scheme {_shown(scheme)} is not a scheme")
    return lower


def parse_request(fields: Fields, *, extended_connect: bool = False) -> RequestHead:
    """The head of a request, or MalformedHead.

    ``extended_connect`` is true where SETTINGS_ENABLE_CONNECT_PROTOCOL was sent (RFC 8441);
    ``:protocol`` is an unknown pseudo-field elsewhere. The head's ``fields`` leave out the
    pseudo-fields. Its ``authority`` is that of ``host`` when there is no ``:authority``, and
    empty when there is neither; ``scheme`` and ``path`` are empty for plain CONNECT.
    An invalid ``grpc-timeout`` is malformed too: to ignore it would turn a call with a deadline
    into one without.
    """
    method: bytes | None = None
    scheme: bytes | None = None
    authority: bytes | None = None
    path: bytes | None = None
    protocol: bytes | None = None
    count: cython.Py_ssize_t = 0
    name: bytes
    value: bytes
    for name, value in fields:
        if name == b":method":
            if method is not None:
                raise MalformedHead("duplicate :method")
            method = value
        elif name == b":scheme":
            if scheme is not None:
                raise MalformedHead("duplicate :scheme")
            scheme = value
        elif name == b":path":
            if path is not None:
                raise MalformedHead("duplicate :path")
            path = value
        elif name == b":authority":
            if authority is not None:
                raise MalformedHead("duplicate :authority")
            authority = value
        elif name == b":protocol" and extended_connect:
            if protocol is not None:
                raise MalformedHead("duplicate :protocol")
            protocol = value
        else:
            break
        count += 1
    regular = fields[count:]

    content_length = -1
    lengths: cython.longlong = 0
    is_grpc = False
    timeout: float | None = None
    host: bytes | None = None
    rule: cython.longlong
    for name, value in regular:
        if value.strip() != value:
            _check_edges(name, value)
        rule = _RULES.get(name, _UNLISTED)
        if rule == _PLAIN:
            continue
        if rule < _HOST:
            _check_unusual(name, value, rule)
        elif rule == _CONTENT_TYPE:
            is_grpc = value == b"application/grpc" or _is_grpc(value)
        elif rule == _GRPC_TIMEOUT:
            if timeout is not None:
                raise MalformedHead("duplicate grpc-timeout")
            try:
                timeout = parse_timeout(value)
            except ValueError as error:
                raise MalformedHead(str(error)) from None
        elif rule == _CONTENT_LENGTH:
            content_length = _content_length(value, content_length)
            lengths += 1
        elif rule == _HOST:
            if host is not None:
                raise MalformedHead("duplicate host")
            host = value
    _check_values(fields)
    if lengths > 1:
        regular = _fold_content_length(regular)

    if method is None:
        raise MalformedHead("no :method")
    if method not in _METHODS and (not method or method.translate(_TOKEN) != method):
        raise MalformedHead(":method is not a token")
    if authority is not None and not authority:
        raise MalformedHead("empty :authority")
    if host is not None:
        if authority is None:
            authority = host
        elif host != authority and _entity(host, scheme) != _entity(authority, scheme):
            raise MalformedHead("host and :authority differ")
        if not host:
            raise MalformedHead("empty host")
    if authority is None:
        authority = b""
    elif authority.translate(_AUTHORITY) != authority:
        raise MalformedHead(f"{_shown(authority)} is not an authority")

    if method == b"CONNECT" and protocol is None:
        _check_connect(authority, scheme, path)
        scheme = path = b""
    else:
        if scheme is None:
            raise MalformedHead("no :scheme")
        if path is None:
            raise MalformedHead("no :path")
        if not path:
            raise MalformedHead("empty :path")
        if path.translate(_PATH) != path:
            raise MalformedHead(":path contains a space, a control character or '#'")
        web: bool = scheme == b"http" or scheme == b"https"
        if not web:
            scheme = _scheme(scheme)
            web = scheme == b"http" or scheme == b"https"
        if web and path[0] != 0x2F and (path != b"*" or method != b"OPTIONS"):
            raise MalformedHead(":path does not begin with '/'")
        if protocol is not None:
            _check_extended_connect(method, authority, protocol)
    return RequestHead(
        method,
        scheme,
        authority,
        path,
        regular,
        protocol=protocol,
        content_length=content_length,
        is_grpc=is_grpc,
        grpc_timeout_s=timeout,
    )


def parse_response(fields: Fields) -> ResponseHead:
    """The head of a response, final or interim (1xx), or MalformedHead.

    ``content_length`` is what the field says: to HEAD, and with status 204 and 304, it may stand
    without any DATA (RFC 9113 section 8.1.1).
    """
    if not fields or fields[0][0] != b":status":
        raise MalformedHead("response does not begin with :status")
    digits: bytes = fields[0][1]
    if len(digits) != 3 or not digits.isdigit() or not b"100" <= digits <= b"599":
        raise MalformedHead(f":status {_shown(digits)} is not a status of 100 to 599")
    if digits == b"101":
        raise MalformedHead(":status 101 does not exist in HTTP/2")
    regular = fields[1:]
    content_length = -1
    lengths: cython.longlong = 0
    name: bytes
    value: bytes
    rule: cython.longlong
    for name, value in regular:
        if value.strip() != value:
            _check_edges(name, value)
        rule = _RULES.get(name, _UNLISTED)
        if rule == _PLAIN:
            continue
        if rule < _HOST:
            _check_unusual(name, value, rule)
        elif rule == _CONTENT_LENGTH:
            content_length = _content_length(value, content_length)
            lengths += 1
    _check_values(regular)
    if lengths > 1:
        regular = _fold_content_length(regular)
    return ResponseHead(int(digits), regular, content_length=content_length)


def check_trailers(fields: Fields) -> None:
    """Raise MalformedHead for a trailer section that breaks the rules: those of heads, and no
    pseudo-fields (RFC 9113 section 8.1)."""
    name: bytes
    value: bytes
    rule: cython.longlong
    for name, value in fields:
        if value.strip() != value:
            _check_edges(name, value)
        rule = _RULES.get(name, _UNLISTED)
        if rule != _PLAIN and rule < _HOST:
            _check_unusual(name, value, rule)
    _check_values(fields)
