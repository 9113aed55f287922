"""The names of everything the gateway counts.

A :class:`Counter` is an index into a row of 64-bit integers that one worker alone writes (see
:mod:`gateway.telemetry.shared`). Counting is one addition::

    counters = shared.row(worker).counters
    counters[Counter.REQUESTS] += 1

On the data path, bind the index once (``_REQUESTS: Final = int(Counter.REQUESTS)``): reading a
member of an enum costs more than the addition.

Most values only ever grow. The members of :data:`GAUGES` go up and down and die with their worker.
A member's name in lower case is its name in a snapshot. The order may change between versions:
the rows live no longer than the process tree that made them.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from gateway.errors import Kind


class Counter(IntEnum):
    """One kind of event, or one gauge. Values are consecutive from 0.

    Besides the members written here there is one ``FAILURE_<KIND>`` for each
    :class:`gateway.errors.Kind`; use :data:`FAILURES` to get at them.
    """

    _ignore_ = "_kind"

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count

    # Downstream connections.
    DOWNSTREAM_CONNECTIONS_ACCEPTED = auto()
    DOWNSTREAM_CONNECTIONS_OPEN = auto()  # gauge
    DOWNSTREAM_CONNECTIONS_REFUSED = auto()  # closed at once: the connection limit was reached
    ACCEPT_ERRORS = auto()  # accept() failed: EMFILE, ENFILE, ENOBUFS, ENOMEM

    # TLS with clients. Resumptions by handshakes is the share of clients that came back.
    TLS_HANDSHAKES = auto()  # completed
    TLS_RESUMPTIONS = auto()  # of those, by a ticket
    TLS_HANDSHAKES_OPEN = auto()  # gauge
    TLS_HANDSHAKES_EVICTED = auto()  # tls.max_handshakes were under way
    TLS_HANDSHAKE_FAILED = auto()  # by an alert of either side
    TLS_HANDSHAKE_TIMEOUT = auto()
    TLS_ERROR = auto()  # a session broke after its handshake, with clients or endpoints
    EARLY_DATA_FORWARDED = auto()  # requests
    EARLY_DATA_HELD = auto()  # requests that waited for the handshake
    EARLY_DATA_REPLAYED = auto()  # connections whose early data was seen before, or had no room
    TOO_EARLY_RETRIED = auto()  # requests answered 425 and sent again after the handshake
    CERTIFICATES_RELOADED = auto()
    CERTIFICATE_RELOAD_FAILED = auto()
    CERTIFICATE_EXPIRES_AT = auto()  # gauge: seconds of the Unix epoch, of the first to expire
    OCSP_FETCHES = auto()
    OCSP_FAILURES = auto()  # of those, without a response that may be served
    OCSP_REVOKED = auto()  # the responder said that a certificate of ours is revoked
    OCSP_STAPLES = auto()  # gauge: certificates with a staple
    OCSP_STAPLES_MISSING = auto()  # gauge: certificates that should have one
    OCSP_UPDATED_AT = auto()  # gauge: seconds of the Unix epoch, thisUpdate of the oldest staple
    OCSP_EXPIRES_AT = auto()  # gauge: seconds of the Unix epoch, of the first staple to expire

    # TLS with endpoints.
    UPSTREAM_TLS_HANDSHAKES = auto()  # completed
    UPSTREAM_TLS_RESUMPTIONS = auto()  # of those, by a ticket
    UPSTREAM_TLS_FAILED = auto()

    # Upstream connections, and why they ended when it was no request's doing.
    UPSTREAM_CONNECTIONS_OPENED = auto()
    UPSTREAM_CONNECTIONS_OPEN = auto()  # gauge
    UPSTREAM_CONNECT_FAILED = auto()
    UPSTREAM_CONNECT_TIMEOUT = auto()
    UPSTREAM_CLOSED_IDLE = auto()
    UPSTREAM_CLOSED_AGE = auto()
    UPSTREAM_CLOSED_GOAWAY = auto()
    UPSTREAM_CLOSED_KEEPALIVE_TIMEOUT = auto()

    # What is alive now. Each returns to zero when the traffic ends.
    TRANSPORTS_OPEN = auto()  # gauge, both sides
    DOWNSTREAM_STREAMS_OPEN = auto()  # gauge
    UPSTREAM_STREAMS_OPEN = auto()  # gauge
    EXCHANGES_OPEN = auto()  # gauge

    # Requests and how they ended.
    REQUESTS = auto()
    RESPONSES_1XX = auto()
    RESPONSES_2XX = auto()
    RESPONSES_3XX = auto()
    RESPONSES_4XX = auto()
    RESPONSES_5XX = auto()
    GRPC_OK = auto()  # grpc-status 0
    GRPC_ERROR = auto()  # any other grpc-status
    CANCELLED_BY_CLIENT = auto()
    RESET_BY_UPSTREAM = auto()
    RESPONSES_DRAINED = auto()  # read to their end although the client had gone (on_cancel)
    RETRIED = auto()  # on another connection or endpoint, the first having not processed it

    # Bytes on the wire, as the kernel counts them: frames, heads and TLS records included.
    DOWNSTREAM_BYTES_IN = auto()
    DOWNSTREAM_BYTES_OUT = auto()
    UPSTREAM_BYTES_IN = auto()
    UPSTREAM_BYTES_OUT = auto()

    # Requests that wait for an upstream connection.
    PENDING = auto()  # gauge
    PENDING_OVERFLOW = auto()
    PENDING_TIMEOUT = auto()

    # One for each limit a hostile or broken peer runs into.
    HEADER_LIST_TOO_LARGE = auto()
    TOO_MANY_FIELDS = auto()
    CONTINUATION_FLOOD = auto()
    HEADER_BLOCK_TOO_LARGE = auto()
    CONCURRENT_STREAMS_EXCEEDED = auto()
    RESET_FLOOD = auto()  # the peer resets what it opened (CVE-2023-44487)
    INDUCED_RESET_FLOOD = auto()  # the peer makes us reset (CVE-2025-8671)
    PING_FLOOD = auto()
    SETTINGS_FLOOD = auto()
    EMPTY_DATA_FLOOD = auto()
    WINDOW_UPDATE_FLOOD = auto()
    PRIORITY_FLOOD = auto()  # PRIORITY and frames of unknown types
    STALLED_STREAM = auto()
    STALLED_CONNECTION = auto()
    PREFACE_TIMEOUT = auto()
    PROXY_HEADER_ERROR = auto()  # a PROXY protocol header that is missing or malformed
    HEADER_TIMEOUT = auto()
    SETTINGS_TIMEOUT = auto()
    HPACK_ERROR = auto()
    PROTOCOL_ERROR = auto()
    FLOW_CONTROL_ERROR = auto()
    FRAME_SIZE_ERROR = auto()
    OUT_BUFFER_LIMIT = auto()  # of one connection
    PROCESS_BUFFER_LIMIT = auto()  # of all connections of a worker

    # One for each way a request can fail.
    for _kind in Kind:
        vars()[f"FAILURE_{_kind.name}"] = auto()


GAUGES: Final = frozenset(
    {
        Counter.DOWNSTREAM_CONNECTIONS_OPEN,
        Counter.TLS_HANDSHAKES_OPEN,
        Counter.CERTIFICATE_EXPIRES_AT,
        Counter.OCSP_STAPLES,
        Counter.OCSP_STAPLES_MISSING,
        Counter.OCSP_UPDATED_AT,
        Counter.OCSP_EXPIRES_AT,
        Counter.UPSTREAM_CONNECTIONS_OPEN,
        Counter.TRANSPORTS_OPEN,
        Counter.DOWNSTREAM_STREAMS_OPEN,
        Counter.UPSTREAM_STREAMS_OPEN,
        Counter.EXCHANGES_OPEN,
        Counter.PENDING,
    }
)
"""What goes up and down. Everything else is monotonic."""

FAILURES: Final[dict[Kind, Counter]] = {kind: Counter[f"FAILURE_{kind.name}"] for kind in Kind}
"""The counter of each kind of failed request."""

NAMES: Final[tuple[str, ...]] = tuple(counter.name.lower() for counter in Counter)
"""The name of each counter in a snapshot, by index."""
