"""The only map from failures to what the client gets.

How a failure is told depends on how far the response has come and on who asks:

==================  ==================================  ===================================
response so far     gRPC request                        any other request
==================  ==================================  ===================================
nothing sent        :func:`rescue`: HTTP 200, the       :func:`rescue`: an HTTP status and
                    status in the head (Trailers-Only)  a line of text
head sent           :func:`trailers`: the status in     :func:`reset_code`: RST_STREAM, so
                    trailers                            that nobody takes the part that
                                                        came for the whole
==================  ==================================  ===================================

Each response carries the :class:`~gateway.errors.Kind` in ``x-gateway-error``, so that it can be
told from one that the upstream made. ``docs/errors.md`` holds :func:`markdown_table`; a test
keeps the two in step.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.errors import Failure, Kind, Side
from gateway.head import Field, Fields
from gateway.wire.frames import ErrorCode
from gateway.wire.grpc import Status, h2_error_to_grpc_status, percent_encode


class Answer(NamedTuple):
    """How one kind of failure is told: a row of the table.

    ``retry_after_s`` is 0 where the field is left out: where the same request would fail again,
    or where it may have been processed already.
    """

    http: int
    grpc: Status
    reset: ErrorCode
    retry_after_s: int
    when: str


ANSWERS: Final[dict[Kind, Answer]] = {
    Kind.MALFORMED_REQUEST: Answer(
        400,
        Status.INTERNAL,
        ErrorCode.PROTOCOL_ERROR,
        0,
        "The request breaks HTTP: fields, body length or trailers.",
    ),
    Kind.UNSUPPORTED_VERSION: Answer(
        505,
        Status.INTERNAL,
        ErrorCode.HTTP_1_1_REQUIRED,
        0,
        "The request line names a version that is neither HTTP/1.0 nor HTTP/1.1.",
    ),
    Kind.CLIENT_TIMEOUT: Answer(
        408,
        Status.DEADLINE_EXCEEDED,
        ErrorCode.CANCEL,
        0,
        "The request head was not whole within `http1.header_timeout`.",
    ),
    Kind.NO_ROUTE: Answer(
        404, Status.UNIMPLEMENTED, ErrorCode.INTERNAL_ERROR, 0, "No route matches the request."
    ),
    Kind.REQUEST_TOO_LARGE: Answer(
        413,
        Status.RESOURCE_EXHAUSTED,
        ErrorCode.CANCEL,
        0,
        "The request's body is larger than allowed.",
    ),
    Kind.HEADERS_TOO_LARGE: Answer(
        431,
        Status.RESOURCE_EXHAUSTED,
        ErrorCode.ENHANCE_YOUR_CALM,
        0,
        "The request's fields are more, or larger, than allowed.",
    ),
    Kind.UNSUPPORTED: Answer(
        501,
        Status.UNIMPLEMENTED,
        ErrorCode.INTERNAL_ERROR,
        0,
        "The gateway does not do this, CONNECT for instance.",
    ),
    Kind.NO_ENDPOINT: Answer(
        503,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        1,
        "The cluster has no endpoint that is available.",
    ),
    Kind.OVERLOADED: Answer(
        503,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        1,
        "A limit of the gateway is reached, such as the requests that wait for a connection.",
    ),
    Kind.PENDING_TIMEOUT: Answer(
        503,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        1,
        "The request waited too long for a connection to the upstream.",
    ),
    Kind.CONNECT_FAILED: Answer(
        502,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        0,
        "No connection to the upstream could be opened.",
    ),
    Kind.CONNECT_TIMEOUT: Answer(
        504,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        0,
        "The upstream did not accept a connection within `connect_timeout`.",
    ),
    Kind.UPSTREAM_RESET: Answer(
        502,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        0,
        "The upstream reset the stream.",
    ),
    Kind.UPSTREAM_REFUSED: Answer(
        503,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        1,
        "The upstream refused the stream without processing it.",
    ),
    Kind.UPSTREAM_PROTOCOL: Answer(
        502,
        Status.INTERNAL,
        ErrorCode.INTERNAL_ERROR,
        0,
        "The upstream broke HTTP.",
    ),
    Kind.UPSTREAM_CLOSED: Answer(
        502,
        Status.UNAVAILABLE,
        ErrorCode.INTERNAL_ERROR,
        0,
        "The connection to the upstream ended before the response did.",
    ),
    Kind.REQUEST_TIMEOUT: Answer(
        504,
        Status.DEADLINE_EXCEEDED,
        ErrorCode.CANCEL,
        0,
        "The route's `timeout` passed.",
    ),
    Kind.DEADLINE_EXCEEDED: Answer(
        504,
        Status.DEADLINE_EXCEEDED,
        ErrorCode.CANCEL,
        0,
        "The request's own deadline (`grpc-timeout`) passed.",
    ),
    Kind.IDLE_TIMEOUT: Answer(
        504,
        Status.UNAVAILABLE,
        ErrorCode.CANCEL,
        0,
        "No byte moved in either direction for `idle_timeout`.",
    ),
    Kind.STALLED: Answer(
        504,
        Status.UNAVAILABLE,
        ErrorCode.ENHANCE_YOUR_CALM,
        0,
        "A peer left its flow-control window shut for too long.",
    ),
    Kind.CLIENT_CANCELLED: Answer(
        499,
        Status.CANCELLED,
        ErrorCode.CANCEL,
        0,
        "The client went away. It sees none of this; logs and counters do.",
    ),
    Kind.DRAINING: Answer(
        503,
        Status.UNAVAILABLE,
        ErrorCode.CANCEL,
        1,
        "The gateway is shutting down.",
    ),
    Kind.INTERNAL: Answer(
        500, Status.INTERNAL, ErrorCode.INTERNAL_ERROR, 0, "A fault of the gateway itself."
    ),
}

_MAX_DETAIL: Final = 256
"""Characters of a failure's detail that are told."""

# The parts that do not depend on the detail, per kind.
_KIND_FIELD: Final[dict[Kind, Field]] = {
    kind: (b"x-gateway-error", kind.value.encode()) for kind in Kind
}
_PLAIN_HEAD: Final[dict[Kind, Fields]] = {
    kind: (
        (b":status", b"%d" % answer.http),
        (b"content-type", b"text/plain; charset=utf-8"),
        _KIND_FIELD[kind],
        *(((b"retry-after", b"%d" % answer.retry_after_s),) if answer.retry_after_s else ()),
    )
    for kind, answer in ANSWERS.items()
}
_GRPC_HEAD: Final[Fields] = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_GRPC_STATUS: Final[dict[Status, Field]] = {
    status: (b"grpc-status", b"%d" % status) for status in Status
}


class Rescue:
    """A response in place of one: ``fields`` with ``:status`` first, and ``body``.

    ``body`` is empty for gRPC, where the head ends the stream. The response to HEAD has the same
    fields and no DATA: leaving ``body`` out is up to the caller.
    """

    __slots__ = ("body", "fields")

    def __init__(self, fields: Fields, body: bytes) -> None:
        self.fields = fields
        self.body = body

    def __repr__(self) -> str:
        return f"<Rescue {self.fields!r} {self.body!r}>"


def grpc_status(failure: Failure) -> Status:
    """The gRPC status of ``failure``: that of its kind, or for UPSTREAM_RESET that of the
    upstream's error code, where it sent one."""
    if failure.kind is Kind.UPSTREAM_RESET and failure.h2_code >= 0:
        return h2_error_to_grpc_status(failure.h2_code)
    return ANSWERS[failure.kind].grpc


def trailers(failure: Failure) -> Fields:
    """The trailers that end a gRPC response whose head was already sent."""
    return (
        _GRPC_STATUS[grpc_status(failure)],
        (b"grpc-message", percent_encode(failure.detail[:_MAX_DETAIL])),
        _KIND_FIELD[failure.kind],
    )


def rescue(failure: Failure, *, grpc: bool) -> Rescue:
    """The whole response to a request of which nothing was answered yet.

    ``grpc`` is the request's :attr:`~gateway.head.RequestHead.is_grpc`.
    """
    if grpc:
        return Rescue(_GRPC_HEAD + trailers(failure), b"")
    kind = failure.kind
    body = f"{kind.value}: {failure.detail[:_MAX_DETAIL]}\n".encode("utf-8", "replace")
    length = (b"content-length", b"%d" % len(body))
    return Rescue((*_PLAIN_HEAD[kind], length), body)


def reset_code(failure: Failure) -> int:
    """The error code of the RST_STREAM that cuts off a response whose head was already sent.

    That of the kind, with two exceptions. An upstream's CANCEL is passed on; its other codes
    speak of the connection between it and us, and would mislead the client. A stall is the
    client's doing only if the failure says so.

    Never REFUSED_STREAM, whatever ``failure.retryable`` says: after a head the client could
    neither believe it (RFC 9113 section 8.7) nor send the request again safely.
    """
    kind = failure.kind
    if kind is Kind.UPSTREAM_RESET and failure.h2_code == ErrorCode.CANCEL:
        return ErrorCode.CANCEL
    if kind is Kind.STALLED and failure.side is not Side.DOWNSTREAM:
        return ErrorCode.INTERNAL_ERROR
    return ANSWERS[kind].reset


def markdown_table() -> str:
    """The table of ``docs/errors.md``, one row per kind, in the order of :class:`Kind`."""
    rows = [
        "| `x-gateway-error` | when | HTTP | `retry-after` | gRPC | RST_STREAM |",
        "|---|---|---|---|---|---|",
    ]
    for kind in Kind:
        answer = ANSWERS[kind]
        retry_after = f"{answer.retry_after_s} s" if answer.retry_after_s else ""
        status = f"{answer.grpc.value} {answer.grpc.name}"
        rows.append(
            f"| `{kind.value}` | {answer.when} | {answer.http} | {retry_after} "
            f"| {status}{_NOTES.get(kind, ('', ''))[0]} "
            f"| {answer.reset.name}{_NOTES.get(kind, ('', ''))[1]} |"
        )
    return "\n".join(rows) + "\n"


# Footnote marks of the exceptions in grpc_status() and reset_code(), explained in the document.
_NOTES: Final[dict[Kind, tuple[str, str]]] = {
    Kind.UPSTREAM_RESET: (" (a)", " (b)"),
    Kind.STALLED: ("", " (c)"),
}
