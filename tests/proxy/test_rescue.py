"""Every failure has one answer, and the document says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import Failure, Kind, Side
from gateway.proxy.rescue import (
    ANSWERS,
    grpc_status,
    markdown_table,
    rescue,
    reset_code,
    trailers,
)
from gateway.wire.fields import check_trailers, parse_request, parse_response
from gateway.wire.frames import ErrorCode
from gateway.wire.grpc import Status, percent_decode

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"

EXPECTED: dict[Kind, tuple[int, int, ErrorCode]] = {
    Kind.MALFORMED_REQUEST: (400, 13, ErrorCode.PROTOCOL_ERROR),
    Kind.UNSUPPORTED_VERSION: (505, 13, ErrorCode.HTTP_1_1_REQUIRED),
    Kind.CLIENT_TIMEOUT: (408, 4, ErrorCode.CANCEL),
    Kind.NO_ROUTE: (404, 12, ErrorCode.INTERNAL_ERROR),
    Kind.REQUEST_TOO_LARGE: (413, 8, ErrorCode.CANCEL),
    Kind.HEADERS_TOO_LARGE: (431, 8, ErrorCode.ENHANCE_YOUR_CALM),
    Kind.UNSUPPORTED: (501, 12, ErrorCode.INTERNAL_ERROR),
    Kind.NO_ENDPOINT: (503, 14, ErrorCode.INTERNAL_ERROR),
    Kind.OVERLOADED: (503, 14, ErrorCode.INTERNAL_ERROR),
    Kind.PENDING_TIMEOUT: (503, 14, ErrorCode.INTERNAL_ERROR),
    Kind.CONNECT_FAILED: (502, 14, ErrorCode.INTERNAL_ERROR),
    Kind.CONNECT_TIMEOUT: (504, 14, ErrorCode.INTERNAL_ERROR),
    Kind.UPSTREAM_RESET: (502, 14, ErrorCode.INTERNAL_ERROR),
    Kind.UPSTREAM_REFUSED: (503, 14, ErrorCode.INTERNAL_ERROR),
    Kind.UPSTREAM_PROTOCOL: (502, 13, ErrorCode.INTERNAL_ERROR),
    Kind.UPSTREAM_CLOSED: (502, 14, ErrorCode.INTERNAL_ERROR),
    Kind.REQUEST_TIMEOUT: (504, 4, ErrorCode.CANCEL),
    Kind.DEADLINE_EXCEEDED: (504, 4, ErrorCode.CANCEL),
    Kind.IDLE_TIMEOUT: (504, 14, ErrorCode.CANCEL),
    Kind.STALLED: (504, 14, ErrorCode.ENHANCE_YOUR_CALM),
    Kind.CLIENT_CANCELLED: (499, 1, ErrorCode.CANCEL),
    Kind.DRAINING: (503, 14, ErrorCode.CANCEL),
    Kind.INTERNAL: (500, 13, ErrorCode.INTERNAL_ERROR),
}
RETRY_AFTER = {
    Kind.NO_ENDPOINT,
    Kind.OVERLOADED,
    Kind.PENDING_TIMEOUT,
    Kind.UPSTREAM_REFUSED,
    Kind.DRAINING,
}

each_kind = pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value)


def failed(kind: Kind, detail: str = "the cause", *, h2_code: int = -1) -> Failure:
    return Failure(kind, Side.DOWNSTREAM, detail, h2_code=h2_code)


def test_every_kind_has_an_answer() -> None:
    assert list(ANSWERS) == list(Kind)
    assert set(EXPECTED) == set(Kind)


@each_kind
def test_plain_response(kind: Kind) -> None:
    response = rescue(failed(kind), grpc=False)
    head = parse_response(response.fields)
    assert head.status == EXPECTED[kind][0]
    assert response.body == f"{kind.value}: the cause\n".encode()
    assert head.content_length == len(response.body)
    assert head.get(b"content-type") == b"text/plain; charset=utf-8"
    assert head.get(b"x-gateway-error") == kind.value.encode()
    assert head.get(b"retry-after") == (b"1" if kind in RETRY_AFTER else None)
    assert head.get(b"grpc-status") is None


@each_kind
def test_grpc_response(kind: Kind) -> None:
    response = rescue(failed(kind), grpc=True)
    head = parse_response(response.fields)
    assert response.body == b""
    assert head.status == 200
    assert head.fields == (
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"%d" % EXPECTED[kind][1]),
        (b"grpc-message", b"the cause"),
        (b"x-gateway-error", kind.value.encode()),
    )


@each_kind
def test_trailers(kind: Kind) -> None:
    fields = trailers(failed(kind))
    check_trailers(fields)
    assert fields == (
        (b"grpc-status", b"%d" % EXPECTED[kind][1]),
        (b"grpc-message", b"the cause"),
        (b"x-gateway-error", kind.value.encode()),
    )


@each_kind
def test_reset_code(kind: Kind) -> None:
    assert reset_code(failed(kind)) == EXPECTED[kind][2]
    assert reset_code(failed(kind)) != ErrorCode.REFUSED_STREAM
    assert reset_code(failed(kind)) != ErrorCode.NO_ERROR


@pytest.mark.parametrize("code", [*ErrorCode, 0xDEAD])
def test_upstream_reset_by_its_code(code: int) -> None:
    failure = Failure(Kind.UPSTREAM_RESET, Side.UPSTREAM, "reset", h2_code=code)
    named: dict[int, Status] = {
        ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
        ErrorCode.CANCEL: Status.CANCELLED,
        ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
        ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
    }
    expected = named.get(code, Status.INTERNAL)
    assert grpc_status(failure) is expected
    assert trailers(failure)[0] == (b"grpc-status", b"%d" % expected)
    assert rescue(failure, grpc=True).fields[2] == (b"grpc-status", b"%d" % expected)
    passed_on = code == ErrorCode.CANCEL
    assert reset_code(failure) == (ErrorCode.CANCEL if passed_on else ErrorCode.INTERNAL_ERROR)
    assert rescue(failure, grpc=False).fields[0] == (b":status", b"502")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.UPSTREAM_RESET])
def test_the_code_says_nothing_about_other_kinds(kind: Kind) -> None:
    failure = failed(kind, h2_code=ErrorCode.CANCEL)
    assert grpc_status(failure) == EXPECTED[kind][1]


def test_a_stall_of_the_upstream_is_not_the_clients() -> None:
    failure = Failure(Kind.STALLED, Side.UPSTREAM, "the upstream does not read")
    assert reset_code(failure) == ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize("detail", ["100% caf\u00e9\r\nx: y", " a ", "", "\udcff"])
def test_any_detail_is_well_formed(detail: str) -> None:
    failure = failed(Kind.INTERNAL, detail)
    fields = rescue(failure, grpc=True).fields
    parse_response(fields)
    check_trailers(trailers(failure))
    assert percent_decode(dict(fields)[b"grpc-message"]) == detail.replace("\udcff", "?")
    plain = rescue(failure, grpc=False)
    assert parse_response(plain.fields).content_length == len(plain.body)


def test_long_details_are_cut() -> None:
    failure = failed(Kind.INTERNAL, "x" * 100_000)
    assert len(rescue(failure, grpc=False).body) < 300
    assert len(dict(trailers(failure))[b"grpc-message"]) < 300


def test_document_is_in_step() -> None:
    """Put the output of ``markdown_table()`` between the two comments if this fails."""
    text = DOCUMENT.read_text(encoding="utf-8")
    _, begin, rest = text.partition("<!-- table: gateway.proxy.rescue.markdown_table() -->\n")
    table, end, _ = rest.partition("<!-- end of table -->\n")
    assert begin
    assert end
    assert table == markdown_table()


def test_grpc_request_of_the_parser_is_what_rescue_asks_for() -> None:
    head = parse_request(
        (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/s/m"),
            (b"content-type", b"application/grpc+proto"),
        )
    )
    response = rescue(failed(Kind.NO_ROUTE), grpc=head.is_grpc)
    assert response.fields[0] == (b":status", b"200")
