"""What a gateway changes in a head before it passes it on (RFC 9110 section 7.6).

Left out on the way to the upstream and back:

- what belongs to one connection: ``connection``, ``proxy-connection``, ``keep-alive``,
  ``transfer-encoding``, ``upgrade``, ``http2-settings``, and ``te`` unless it says ``trailers``,
  which is then all it says (7.6.1). HTTP/2 has none of them (RFC 9113 section 8.2.2), but heads
  can come from HTTP/1.1; what its ``connection`` field names has to be gone before it is a head;
- ``proxy-authenticate``, ``proxy-authorization`` and ``proxy-authentication-info``: they speak to
  the next proxy only (RFC 9110 section 11.7). Envoy and nginx pass them on; Go's reverse proxy
  drops them, and so do we, because a credential meant for another proxy is not the upstream's;
- ``host``: its content is in ``:authority``.

Added to a request:

- ``x-forwarded-for``: the client's address, after those that a trusted hop sent;
- ``x-forwarded-proto`` and ``x-forwarded-host``: what a trusted hop sent, because the outermost
  proxy
  knows what the user's agent spoke and we only know the last hop; else our own. What anybody else
  sent of these three, and of ``x-forwarded-port``, ``x-forwarded-client-cert`` and ``forwarded``,
  is dropped: a backend would take it for the word of its proxy;
- ``x-forwarded-client-cert``: the certificate that the client proved to have, if it did;
- ``via``: our entry, after those that are there (7.6.3).

``grpc-timeout`` is left out: the caller appends it, reduced by the time spent. ``x-request-id``
goes through as it is, and ``max-forwards`` too: only OPTIONS and TRACE give it a meaning (7.6.2),
and this gateway answers neither itself.

A field that does not change stays the same tuple, which is what the HPACK encoder's table likes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.head import Field, Fields, RequestHead, ResponseHead

VIA: Final = b"2 gateway"
"""Protocol version received and our pseudonym: the entry in ``via`` for what came by HTTP/2."""

VIA_HTTP1: Final = b"1.1 gateway"
"""The same for what came by HTTP/1.1."""

# What to do with a field of a request or a response; names that are not listed are passed on.
_DROP: int = cython.declare(cython.longlong, 0)
_TE: int = cython.declare(cython.longlong, 1)
_VIA: int = cython.declare(cython.longlong, 2)
_FORWARDED_FOR: int = cython.declare(cython.longlong, 3)
_FORWARDED_PROTO: int = cython.declare(cython.longlong, 4)
_FORWARDED_HOST: int = cython.declare(cython.longlong, 5)
_FORWARDED: int = cython.declare(cython.longlong, 6)
_PASS: int = cython.declare(cython.longlong, 7)

_HOP_BY_HOP: Final = (
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"transfer-encoding",
    b"upgrade",
    b"http2-settings",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-authentication-info",
)
_PSEUDO: Final = (b":method", b":scheme", b":authority", b":path", b":protocol", b":status")
_REQUEST: dict[bytes, int] = cython.declare(
    dict,
    {
        **dict.fromkeys(_HOP_BY_HOP + _PSEUDO, 0),
        b"host": 0,
        b"grpc-timeout": 0,
        b"te": 1,
        b"via": 2,
        b"x-forwarded-for": 3,
        b"x-forwarded-proto": 4,
        b"x-forwarded-host": 5,
        b"x-forwarded-port": 6,
        b"x-forwarded-client-cert": 6,
        b"forwarded": 6,
    },
)
_RESPONSE: dict[bytes, int] = cython.declare(
    dict, {**dict.fromkeys(_HOP_BY_HOP + _PSEUDO, 0), b"te": 0, b"via": 2}
)

# Fields that are the same in most messages, made once.
_METHOD_FIELDS: dict[bytes, Field] = cython.declare(
    dict, {method: (b":method", method) for method in (b"POST", b"GET", b"HEAD", b"PUT")}
)
_SCHEME_FIELDS: dict[bytes, Field] = cython.declare(
    dict, {scheme: (b":scheme", scheme) for scheme in (b"http", b"https")}
)
_STATUS_FIELDS: tuple[Field, ...] = cython.declare(
    tuple, tuple((b":status", b"%03d" % status) for status in range(600))
)
_TE_TRAILERS: Field = cython.declare(tuple, (b"te", b"trailers"))


def _says_trailers(te: bytes) -> bool:
    """Whether a ``te`` list has the member ``trailers``, with or without parameters."""
    return any(
        member.partition(b";")[0].strip().lower() == b"trailers" for member in te.split(b",")
    )


def request_fields(
    head: RequestHead,
    *,
    client: bytes,
    scheme: bytes,
    trusted: bool,
    via: bytes = VIA,
    certificate: bytes = b"",
) -> Fields:
    """All the fields to send to the upstream, pseudo-fields first, without ``grpc-timeout``.

    ``client`` is the client's address as text, without port or brackets, and empty where there is
    none (unix sockets): ``x-forwarded-for`` then stays as it is. ``scheme`` is what the client's
    connection is, ``http`` or ``https``; the upstream's ``:scheme`` is the request's own.
    ``trusted`` says whether the client's ``x-forwarded-*`` fields are believed. ``certificate`` is
    the element of ``x-forwarded-client-cert`` for the certificate that the client proved to have.
    """
    fields: list[Field] = [_METHOD_FIELDS.get(head.method) or (b":method", head.method)]
    if head.protocol is not None:
        fields.append((b":protocol", head.protocol))
    if head.scheme:
        fields.append(_SCHEME_FIELDS.get(head.scheme) or (b":scheme", head.scheme))
    authority: bytes = head.authority
    if authority:
        fields.append((b":authority", authority))
    if head.path:
        fields.append((b":path", head.path))

    addresses: bytes = b""
    hops: bytes = b""
    has_proto: cython.bint = False
    has_host: cython.bint = False
    believed: cython.bint = trusted
    rule: cython.longlong
    for field in head.fields:
        rule = _REQUEST.get(field[0], _PASS)
        if rule == _PASS:
            fields.append(field)
        elif rule == _TE:
            if field[1] == b"trailers":
                fields.append(field)
            elif _says_trailers(field[1]):
                fields.append(_TE_TRAILERS)
        elif rule == _VIA:
            if field[1]:
                hops = hops + field[1] + b", "
        elif rule == _DROP or not believed:
            pass
        elif rule == _FORWARDED_FOR:
            if field[1]:
                addresses = addresses + b", " + field[1] if addresses else field[1]
        elif rule == _FORWARDED_PROTO:
            has_proto = True
            fields.append(field)
        elif rule == _FORWARDED_HOST:
            has_host = True
            fields.append(field)
        else:
            fields.append(field)

    if client:
        addresses = addresses + b", " + client if addresses else client
    if addresses:
        fields.append((b"x-forwarded-for", addresses))
    if not has_proto:
        fields.append((b"x-forwarded-proto", scheme))
    if not has_host and authority:
        fields.append((b"x-forwarded-host", authority))
    if certificate:
        fields.append((b"x-forwarded-client-cert", certificate))
    fields.append((b"via", hops + via))
    return tuple(fields)


def effective_client(head: RequestHead, client: bytes, hops: Container[str]) -> bytes:
    """Whose request it is: the last address of ``x-forwarded-for`` that is no trusted hop's.

    ``client`` is the peer, itself a trusted hop. What is no address ends the search at the hop that
    sent it.
    """
    addresses = b",".join([value for name, value in head.fields if name == b"x-forwarded-for"])
    nearest = client
    for address in reversed(addresses.split(b",")):
        candidate = _without_port(address.strip(b" \t"))
        if candidate is None:
            break
        nearest = candidate
        if candidate.decode("ascii", "replace") not in hops:
            break
    return nearest


def _without_port(address: bytes) -> bytes | None:
    """An address of ``x-forwarded-for`` without brackets and port; None if it is none."""
    if address.startswith(b"["):
        address = address[1:].partition(b"]")[0]
    elif address.count(b":") == 1:
        address = address.partition(b":")[0]
    if not address or address.strip(b"0123456789abcdefABCDEF:.") or len(address) > 45:
        return None
    return address


def join_cookies(fields: Fields) -> Fields:
    """The fields with one ``cookie`` (RFC 9113 section 8.2.3); the same tuple if it has no more."""
    crumbs = [value for name, value in fields if name == b"cookie"]
    if len(crumbs) < 2:
        return fields
    joined: list[Field] = [field for field in fields if field[0] != b"cookie"]
    joined.append((b"cookie", b"; ".join(crumbs)))
    return tuple(joined)


def response_fields(head: ResponseHead, *, via: bytes = VIA) -> Fields:
    """All the fields to send to the client, ``:status`` first. For interim (1xx) heads too."""
    fields: list[Field] = [_STATUS_FIELDS[head.status]]
    hops: bytes = b""
    rule: cython.longlong
    for field in head.fields:
        rule = _RESPONSE.get(field[0], _PASS)
        if rule == _PASS:
            fields.append(field)
        elif rule == _VIA and field[1]:
            hops = hops + field[1] + b", "
    fields.append((b"via", hops + via))
    return tuple(fields)
