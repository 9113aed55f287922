"""What can go wrong with a request, said once for every level.

A :class:`Failure` tells the kind, whose fault it is and whether the same request may safely be
tried on another endpoint. Only :mod:`gateway.proxy.rescue` turns a failure into a response.
"""

from __future__ import annotations

from enum import Enum


class Side(Enum):
    """Which end of the journey failed."""

    DOWNSTREAM = "downstream"
    UPSTREAM = "upstream"
    INTERNAL = "internal"


class Kind(Enum):
    """What failed. The value is sent to the client as ``x-gateway-error``."""

    MALFORMED_REQUEST = "malformed_request"
    UNSUPPORTED_VERSION = "unsupported_version"
    CLIENT_TIMEOUT = "client_timeout"
    NO_ROUTE = "no_route"
    REQUEST_TOO_LARGE = "request_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNSUPPORTED = "unsupported"
    NO_ENDPOINT = "no_endpoint"
    OVERLOADED = "overloaded"
    PENDING_TIMEOUT = "pending_timeout"
    CONNECT_FAILED = "connect_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    UPSTREAM_RESET = "upstream_reset"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    UPSTREAM_CLOSED = "upstream_closed"
    REQUEST_TIMEOUT = "request_timeout"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    IDLE_TIMEOUT = "idle_timeout"
    STALLED = "stalled"
    CLIENT_CANCELLED = "client_cancelled"
    DRAINING = "draining"
    INTERNAL = "internal"


class Failure:
    """One failed request: ``detail`` is a short sentence that names the cause.

    ``retryable`` is true only when the upstream certainly did not process the request
    (RFC 9113 section 8.7: REFUSED_STREAM, or above the last stream id of a GOAWAY; never sent).
    ``h2_code`` is the upstream's RST_STREAM or GOAWAY error code where one was received, else -1.
    """

    __slots__ = ("detail", "h2_code", "kind", "retryable", "side")

    def __init__(
        self,
        kind: Kind,
        side: Side,
        detail: str,
        *,
        retryable: bool = False,
        h2_code: int = -1,
    ) -> None:
        self.kind = kind
        self.side = side
        self.detail = detail
        self.retryable = retryable
        self.h2_code = h2_code

    def __repr__(self) -> str:
        return f"<Failure {self.kind.value} {self.side.value}: {self.detail}>"


class GatewayError(Exception):
    """Base of the errors that a user of the command line sees; ``str()`` is the whole message."""


class ConfigError(GatewayError):
    """A configuration that can't be served. The message names the key (and the file and line)."""


class ListenError(GatewayError):
    """A listening socket that can't be opened. The message names the address."""
