"""What changes in a head on its way through (RFC 9110 section 7.6)."""

from __future__ import annotations

import pytest

from gateway.head import Field, Fields, RequestHead, ResponseHead
from gateway.net.networks import Networks
from gateway.wire.fields import parse_request, parse_response
from gateway.wire.forwarding import (
    effective_client,
    join_cookies,
    request_fields,
    response_fields,
)

PSEUDO: Fields = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"svc.example"),
    (b":path", b"/pkg.Service/Method"),
)
ADDED: Fields = (
    (b"x-forwarded-for", b"10.0.0.9"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"svc.example"),
    (b"via", b"2 gateway"),
)


def forward(*fields: Field, client: bytes = b"10.0.0.9") -> Fields:
    """The regular fields of what goes upstream."""
    sent = request_fields(
        parse_request(PSEUDO + fields), client=client, scheme=b"https", trusted=True
    )
    assert sent[: len(PSEUDO)] == PSEUDO
    return sent[len(PSEUDO) :]


def values(fields: Fields, name: bytes) -> list[bytes]:
    return [value for field, value in fields if field == name]


def test_bare_request() -> None:
    assert forward() == ADDED


def test_other_fields_are_the_same_tuples() -> None:
    fields = (
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"user-agent", b"grpc-go/1.60"),
        (b"x-request-id", b"abc"),
        (b"trailer", b"x"),
        (b"authorization", b"Bearer x"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"max-forwards", b"3"),
        (b"key-bin", b"AAEC"),
    )
    sent = forward(*fields)
    assert sent == fields + ADDED
    assert all(mine is theirs for mine, theirs in zip(sent, fields, strict=False))


@pytest.mark.parametrize(
    "name",
    [
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
    ],
)
def test_hop_by_hop(name: bytes) -> None:
    """Heads of HTTP/1.1 can hold them, so they do not come through the parser here."""
    field = (name, b"x")
    head = RequestHead(b"POST", b"http", b"svc.example", b"/pkg.Service/Method", (field,))
    assert request_fields(head, client=b"10.0.0.9", scheme=b"https", trusted=True) == PSEUDO + ADDED
    response = response_fields(ResponseHead(200, (field,)))
    assert response == ((b":status", b"200"), (b"via", b"2 gateway"))


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b"trailers", [b"trailers"]),
        (b"Trailers", [b"trailers"]),
        (b"gzip;q=0.5, trailers", [b"trailers"]),
        (b"gzip", []),
        (b"", []),
    ],
)
def test_te(value: bytes, sent: list[bytes]) -> None:
    head = RequestHead(b"GET", b"http", b"a", b"/", ((b"te", value),))
    assert values(request_fields(head, client=b"", scheme=b"http", trusted=True), b"te") == sent


def test_host_becomes_authority() -> None:
    head = parse_request((*PSEUDO[:2], PSEUDO[3], (b"host", b"h.example:81")))
    sent = request_fields(head, client=b"10.0.0.9", scheme=b"http", trusted=True)
    assert values(sent, b":authority") == [b"h.example:81"]
    assert values(sent, b"x-forwarded-host") == [b"h.example:81"]
    assert values(sent, b"host") == []


def test_host_beside_authority_is_left_out() -> None:
    assert forward((b"host", b"svc.example")) == ADDED


def test_no_authority() -> None:
    head = parse_request((*PSEUDO[:2], PSEUDO[3]))
    sent = request_fields(head, client=b"10.0.0.9", scheme=b"http", trusted=True)
    assert values(sent, b":authority") == []
    assert values(sent, b"x-forwarded-host") == []


def test_grpc_timeout_is_left_to_the_caller() -> None:
    assert forward((b"grpc-timeout", b"5S")) == ADDED


def test_forwarded_for_is_appended() -> None:
    sent = forward((b"x-forwarded-for", b"1.1.1.1, 2.2.2.2"), (b"x-forwarded-for", b"3.3.3.3"))
    assert values(sent, b"x-forwarded-for") == [b"1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.9"]


def test_empty_forwarded_for_counts_as_absent() -> None:
    assert values(forward((b"x-forwarded-for", b"")), b"x-forwarded-for") == [b"10.0.0.9"]


def test_client_without_address() -> None:
    assert values(forward(client=b""), b"x-forwarded-for") == []
    sent = forward((b"x-forwarded-for", b"1.1.1.1"), client=b"")
    assert values(sent, b"x-forwarded-for") == [b"1.1.1.1"]


def test_forwarded_proto_and_host_that_are_there_win() -> None:
    sent = forward((b"x-forwarded-proto", b"http"), (b"x-forwarded-host", b"public.example"))
    assert values(sent, b"x-forwarded-proto") == [b"http"]
    assert values(sent, b"x-forwarded-host") == [b"public.example"]


def test_via_is_appended() -> None:
    sent = forward((b"via", b"1.1 first"), (b"via", b"2 second"))
    assert values(sent, b"via") == [b"1.1 first, 2 second, 2 gateway"]
    head = parse_request(PSEUDO)
    own = request_fields(head, client=b"", scheme=b"http", trusted=True, via=b"1.1 edge")
    assert values(own, b"via") == [b"1.1 edge"]


def test_rare_methods_schemes_and_connect() -> None:
    rare = parse_request(((b":method", b"REPORT"), (b":scheme", b"coap"), (b":path", b"/")))
    assert request_fields(rare, client=b"", scheme=b"http", trusted=True)[:3] == (
        (b":method", b"REPORT"),
        (b":scheme", b"coap"),
        (b":path", b"/"),
    )
    connect = parse_request(((b":method", b"CONNECT"), (b":authority", b"a:1")))
    assert request_fields(connect, client=b"", scheme=b"http", trusted=True)[:3] == (
        (b":method", b"CONNECT"),
        (b":authority", b"a:1"),
        (b"x-forwarded-proto", b"http"),
    )
    extended = parse_request(
        ((b":method", b"CONNECT"), (b":protocol", b"websocket"), *PSEUDO[1:]),
        extended_connect=True,
    )
    sent = request_fields(extended, client=b"", scheme=b"http", trusted=True)
    assert sent[:5] == ((b":method", b"CONNECT"), (b":protocol", b"websocket"), *PSEUDO[1:])


def test_what_is_sent_is_well_formed() -> None:
    sent = request_fields(
        parse_request((*PSEUDO, (b"te", b"trailers"), (b"via", b""))),
        client=b"2001:db8::1",
        scheme=b"http",
        trusted=True,
    )
    again = parse_request(sent)
    assert again.get(b"x-forwarded-for") == b"2001:db8::1"
    assert again.get(b"via") == b"2 gateway"


def test_response() -> None:
    fields = ((b"content-type", b"text/plain"), (b"via", b"1.1 inner"), (b"trailer", b"x"))
    sent = response_fields(parse_response(((b":status", b"404"), *fields)))
    assert sent == (
        (b":status", b"404"),
        fields[0],
        fields[2],
        (b"via", b"1.1 inner, 2 gateway"),
    )
    assert sent[1] is fields[0]


def test_response_te_is_dropped_and_via_can_be_named() -> None:
    sent = response_fields(ResponseHead(103, ((b"te", b"trailers"),)), via=b"2 edge")
    assert sent == ((b":status", b"103"), (b"via", b"2 edge"))


FORGED: Fields = (
    (b"x-forwarded-for", b"10.9.9.9"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"admin.example"),
    (b"x-forwarded-port", b"1"),
    (b"forwarded", b"for=10.9.9.9"),
)


def test_what_strangers_say_of_hops_is_dropped() -> None:
    head = parse_request((*PSEUDO, *FORGED, (b"x-other", b"1")))
    sent = request_fields(head, client=b"192.0.2.7", scheme=b"http", trusted=False)
    assert sent[len(PSEUDO) :] == (
        (b"x-other", b"1"),
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"svc.example"),
        (b"via", b"2 gateway"),
    )


def test_what_trusted_hops_say_passes() -> None:
    head = parse_request((*PSEUDO, *FORGED))
    sent = request_fields(head, client=b"192.0.2.7", scheme=b"http", trusted=True)
    assert values(sent, b"x-forwarded-for") == [b"10.9.9.9, 192.0.2.7"]
    for field in FORGED[1:]:
        assert field in sent


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        ((), b"10.0.0.1"),
        ((b"203.0.113.5",), b"203.0.113.5"),
        ((b"198.51.100.1, 203.0.113.5",), b"203.0.113.5"),
        ((b"198.51.100.1, 203.0.113.5, 10.0.0.2",), b"203.0.113.5"),
        ((b"198.51.100.1", b"10.0.0.2"), b"198.51.100.1"),
        ((b"10.0.0.3, 10.0.0.2",), b"10.0.0.3"),
        ((b"[2001:db8::1]:4711",), b"2001:db8::1"),
        ((b"203.0.113.5:80",), b"203.0.113.5"),
        ((b"unknown, 10.0.0.2",), b"10.0.0.2"),
        ((b"a<script>",), b"10.0.0.1"),
        ((b"",), b"10.0.0.1"),
    ],
)
def test_the_client_behind_trusted_hops(fields: tuple[bytes, ...], client: bytes) -> None:
    """The last address that is no hop of ours: what stands before it anybody may have written."""
    head = parse_request((*PSEUDO, *((b"x-forwarded-for", value) for value in fields)))
    assert effective_client(head, b"10.0.0.1", Networks(("10.0.0.0/8",))) == client


def test_cookies_are_joined_for_http1() -> None:
    fields: Fields = ((b"a", b"b"), (b"cookie", b"x=1"), (b"c", b"d"), (b"cookie", b"y=2"))
    assert join_cookies(fields) == ((b"a", b"b"), (b"c", b"d"), (b"cookie", b"x=1; y=2"))
    one: Fields = ((b"cookie", b"x=1"),)
    assert join_cookies(one) is one
