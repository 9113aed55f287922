"""The models of ``gateway.toml``, frozen.

One class per table. An attribute in seconds ends in ``_s``; its key in the file has no such ending
and takes a string with a unit (``idle_timeout = "15s"``). Sizes are in bytes. A model made in
Python is not checked: :func:`gateway.config.load` is what checks.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.config.address import Address, parse_address
from gateway.config.kinds import (
    INTERNAL,
    choice,
    count,
    duration,
    flag,
    part,
    share,
    size,
    text,
    texts,
    toml_name,
)

MAX_WINDOW = 2**31 - 1
"""The largest flow-control window (RFC 9113 section 6.9.1)."""

KIB = 1024
MIB = 1024 * 1024

PolicyName = Literal["least_connections", "ring_hash", "round_robin", "random"]
Protocol = Literal["auto", "h2", "http1"]
OnCancel = Literal["abort", "drain"]
ProxyProtocol = Literal["v1", "v2"]
HashFallback = Literal["random", "round_robin", "client", "reject"]


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=toml_name):
    """What all tables share."""


class Gateway(_Model, frozen=True, kw_only=True):
    """The process: workers, their restart and their end."""

    workers: Annotated[
        int | Literal["auto"],
        count(
            'Worker processes; "auto" is one for each core that this process may use.',
            least=1,
            most=256,
            word="auto",
        ),
    ] = "auto"
    drain_timeout_s: Annotated[
        float, duration("How long open streams may go on after SIGTERM or SIGINT.")
    ] = 30.0
    restart_backoff_s: Annotated[
        float,
        duration(
            "Wait before a worker that died is replaced; doubles with each death that follows "
            "soon, up to `restart_backoff_max`.",
            least=0.001,
        ),
    ] = 0.1
    restart_backoff_max_s: Annotated[
        float, duration("The longest wait before a worker is replaced.", least=0.001)
    ] = 10.0
    max_buffered_bytes: Annotated[
        int,
        size(
            "Bytes that one worker process holds for slow peers, over all its connections. Above "
            "it new requests are answered 503 and no window is given back.",
            least=64 * KIB,
        ),
    ] = 256 * MIB


class Http2(_Model, frozen=True, kw_only=True):
    """Limits of every HTTP/2 connection, downstream and upstream.

    The `max_…` counts from `max_resets` to `max_ignored_frames` hold for each `flood_interval`; a
    peer above one of them gets GOAWAY(ENHANCE_YOUR_CALM) and loses its connection.
    """

    max_concurrent_streams: Annotated[
        int, count("Streams a client may have open: SETTINGS_MAX_CONCURRENT_STREAMS.", least=1)
    ] = 1000
    header_table_size: Annotated[
        int,
        size("HPACK dynamic table, each direction: SETTINGS_HEADER_TABLE_SIZE.", most=MIB),
    ] = 4096
    max_frame_size: Annotated[
        int,
        size(
            "Largest frame payload we take: SETTINGS_MAX_FRAME_SIZE.", least=16384, most=2**24 - 1
        ),
    ] = 16384
    initial_stream_window: Annotated[
        int,
        size(
            "Receive window a stream starts with: SETTINGS_INITIAL_WINDOW_SIZE.",
            least=1,
            most=MAX_WINDOW,
        ),
    ] = MIB
    max_stream_window: Annotated[
        int,
        size(
            "Receive window a stream can grow to with the measured bandwidth-delay product.",
            least=1,
            most=MAX_WINDOW,
        ),
    ] = 2 * MIB
    initial_connection_window: Annotated[
        int,
        size("Receive window a connection starts with.", least=65535, most=MAX_WINDOW),
    ] = 2 * MIB
    max_connection_window: Annotated[
        int,
        size("Receive window a connection can grow to.", least=65535, most=MAX_WINDOW),
    ] = 4 * MIB
    max_header_list_size: Annotated[
        int,
        size(
            "Decoded size of one field section, 32 bytes added for each field (RFC 9113 section "
            "6.5.2): SETTINGS_MAX_HEADER_LIST_SIZE. A larger request is answered 431.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_fields: Annotated[
        int, count("Fields of one field section. A request with more is answered 431.", least=8)
    ] = 128
    max_header_block: Annotated[
        int,
        size(
            "Encoded bytes of one HEADERS frame with its CONTINUATION frames; above it the "
            "connection is closed.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_continuation_frames: Annotated[
        int, count("CONTINUATION frames of one field section; above it the connection is closed.")
    ] = 16
    flood_interval_s: Annotated[
        float, duration("The interval over which floods are counted.", least=0.1, most=3600.0)
    ] = 10.0
    max_resets: Annotated[
        int,
        count("RST_STREAM frames from a client in one `flood_interval` (rapid reset).", least=1),
    ] = 2000
    max_induced_resets: Annotated[
        int,
        count(
            "Resets we had to send because of a client's mistakes in one `flood_interval`.",
            least=1,
        ),
    ] = 200
    max_pings: Annotated[
        int, count("PING frames without DATA of ours in between, in one `flood_interval`.", least=1)
    ] = 200
    max_settings: Annotated[int, count("SETTINGS frames in one `flood_interval`.", least=1)] = 100
    max_empty_data: Annotated[
        int,
        count("DATA frames without data and without END_STREAM in one `flood_interval`.", least=1),
    ] = 1000
    max_window_updates: Annotated[
        int,
        count(
            "WINDOW_UPDATE frames beyond two for each DATA frame of ours, in one `flood_interval`.",
            least=1,
        ),
    ] = 20000
    max_ignored_frames: Annotated[
        int,
        count(
            "PRIORITY frames, frames of unknown type, acknowledgements of nothing and interim "
            "(1xx) responses in one `flood_interval`.",
            least=1,
        ),
    ] = 2000
    stall_timeout_s: Annotated[
        float | None,
        duration(
            "How long a stream with bytes to send may wait for the peer's window without any "
            "progress before it is reset (slow read).",
            least=0.1,
            none="a stalled stream waits for ever",
        ),
    ] = 60.0
    preface_timeout_s: Annotated[
        float, duration("How long a client may take for the connection preface.", least=0.1)
    ] = 10.0
    header_timeout_s: Annotated[
        float,
        duration("How long a started field section may take to be whole (slow loris).", least=0.1),
    ] = 10.0
    settings_timeout_s: Annotated[
        float, duration("How long a peer may take to acknowledge our SETTINGS.", least=0.1)
    ] = 10.0
    max_connection_buffer: Annotated[
        int,
        size(
            "Bytes that wait to be written to one connection before its senders have to wait.",
            least=64 * KIB,
        ),
    ] = 256 * KIB
    max_closed_streams: Annotated[
        int,
        count(
            "Streams we reset that a connection remembers, to tell late frames from wrong ones.",
            least=1,
            most=1_000_000,
        ),
    ] = 1000


class Http1(_Model, frozen=True, kw_only=True):
    """Limits of every HTTP/1.1 connection, downstream and upstream."""

    max_head_size: Annotated[
        int,
        size(
            "Bytes of a request or status line with its fields, and of a trailer section. A larger "
            "request is answered 431.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_fields: Annotated[
        int, count("Fields of one head. A request with more is answered 431.", least=8)
    ] = 128
    header_timeout_s: Annotated[
        float,
        duration(
            "How long a request head may take from its first byte to its end (slow loris); then "
            "the answer is 408.",
            least=0.1,
        ),
    ] = 10.0
    keepalive_timeout_s: Annotated[
        float | None,
        duration(
            "A client's connection without a request for so long is closed.",
            least=0.1,
            none="never closed for being idle, but for the listener's `idle_timeout`",
        ),
    ] = 75.0
    max_body_buffer: Annotated[
        int,
        size("Bytes of a body that are read ahead of a slow receiver.", least=16 * KIB),
    ] = 256 * KIB
    max_chunk_extensions: Annotated[
        int, size("Bytes of chunk extensions in one body.", most=MIB)
    ] = 16 * KIB


class Listener(_Model, frozen=True, kw_only=True):
    """One address to accept connections on: HTTP/1.1 and HTTP/2, told apart by what comes first."""

    address: Annotated[
        str,
        text(
            "Where to listen. `0.0.0.0` and `[::]` mean every interface; port 0 lets the system "
            "choose.",
            form="address",
        ),
    ]
    tls: Annotated[
        str | None,
        text("Name of a `[tls.NAME]` table. Not served by this version: leave it out."),
    ] = None
    backlog: Annotated[
        int, count("Connections the kernel queues for each worker.", least=1, most=65535)
    ] = 1024
    max_connections: Annotated[
        int,
        count(
            "Open connections of one worker on this listener; more are closed at once.",
            least=1,
        ),
    ] = 10000
    idle_timeout_s: Annotated[
        float | None,
        duration(
            "A connection without streams for so long is closed.",
            least=0.1,
            none="never closed for being idle",
        ),
    ] = 300.0
    trusted_hops: Annotated[
        tuple[str, ...],
        texts(
            "Peers whose `x-forwarded-*` fields are believed: addresses, networks "
            '(`"10.0.0.0/8"`) or `"unix"`. Those of all others are dropped.',
        ),
    ] = ()
    proxy_protocol_from: Annotated[
        tuple[str, ...],
        texts(
            "Peers whose connections begin with a PROXY protocol header, version 1 or 2: "
            'addresses, networks or `"unix"`. Without the header they are closed.',
        ),
    ] = ()
    mode: Annotated[
        str | None,
        text(
            'Permissions of a unix socket, in octal (`"0660"`). Absent: what the umask leaves.',
            form="octal",
        ),
    ] = None

    def target(self) -> Address:
        """The address, read."""
        return parse_address(self.address)

    def mode_bits(self) -> int | None:
        """``mode`` as a number, None when absent."""
        return None if self.mode is None else int(self.mode, 8)


class Tls(_Model, frozen=True, kw_only=True):
    """A certificate and its key. Checked by this version, served by a later one."""

    name: Annotated[str, INTERNAL] = ""
    certificate: Annotated[
        str,
        text(
            "PEM file with the certificate chain, leaf first. A relative path starts at the "
            "configuration file.",
            form="path",
        ),
    ]
    private_key: Annotated[str, text("PEM file with the private key.", form="path")]


class Match(_Model, frozen=True, kw_only=True):
    """What a request must have for a route to take it; all keys given must match."""

    path: Annotated[
        str | None, text("The whole path, without the query. Not together with `path_prefix`.")
    ] = None
    path_prefix: Annotated[str | None, text("What the path starts with.")] = None
    authority: Annotated[
        str | None,
        text(
            "The authority, in any case. Without a port here, a request may have any. "
            '`"*.example.org"` takes every name that ends in `.example.org`.',
            form="authority",
        ),
    ] = None
    method: Annotated[str | None, text("The method, as sent (`POST`).", form="token")] = None
    headers: Annotated[
        dict[str, str],
        text(
            "Header fields or gRPC metadata that must be present with exactly these values.",
            form="table of strings",
        ),
    ] = {}


class Cors(_Model, frozen=True, kw_only=True):
    """Which pages of other origins may read the responses (the Fetch standard's CORS protocol)."""

    allow_origins: Annotated[
        tuple[str, ...],
        texts(
            'Origins: `"https://app.example.org"`, `"https://*.example.org"`, or `"*"` for all.',
        ),
    ]
    allow_methods: Annotated[tuple[str, ...], texts("Methods a page may use.")] = (
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
    )
    allow_headers: Annotated[
        tuple[str, ...],
        texts('Fields a page may send; `"*"` is what it asks for.'),
    ] = ("*",)
    expose_headers: Annotated[tuple[str, ...], texts("Response fields a page may read.")] = (
        "grpc-status",
        "grpc-message",
        "grpc-status-details-bin",
        "x-request-id",
        "x-gateway-error",
    )
    max_age_s: Annotated[
        float, duration("How long a browser may remember the answer to a preflight.")
    ] = 600.0
    allow_credentials: Annotated[bool, flag("Whether a page may send cookies and the like.")] = (
        False
    )


class Compression(_Model, frozen=True, kw_only=True):
    """gzip for clients that accept it."""

    http: Annotated[
        bool, flag("Compress textual responses. Event streams are never compressed.")
    ] = True
    grpc: Annotated[bool, flag("Compress the messages of gRPC responses.")] = False
    level: Annotated[int, count("From 1, fast, to 9, small.", least=1, most=9)] = 6
    min_size: Annotated[int, size("Smaller bodies and messages are left alone.")] = KIB
    max_message: Annotated[
        int, size("Larger gRPC messages are left alone: a message is compressed as a whole.")
    ] = 4 * MIB


class Route(_Model, frozen=True, kw_only=True):
    """Which requests go to which cluster. In order: the first route that matches wins."""

    match: Annotated[Match, part("What a request must have. Absent or empty: every request.")] = (
        Match()
    )
    cluster: Annotated[str, text("Name of a `[clusters.NAME]` table.")]
    timeout_s: Annotated[
        float | None,
        duration(
            "From the request head to the end of the response. gRPC deadlines hold besides.",
            least=0.001,
            none="a stream lives as long as it lives",
        ),
    ] = None
    idle_timeout_s: Annotated[
        float | None,
        duration(
            "A stream without a byte in either direction for so long is ended.",
            least=0.001,
            none="an idle stream is never ended",
        ),
    ] = 300.0
    connect_timeout_s: Annotated[
        float | None,
        duration(
            "How long a request waits for a connection to be made. Absent: the cluster's.",
            least=0.001,
        ),
    ] = None
    max_request_body: Annotated[
        int | None,
        size("Bytes of a request body; a larger one is answered 413. Absent: no limit."),
    ] = None
    grpc_web: Annotated[
        bool, flag("Whether gRPC-Web requests are turned into gRPC for the endpoints.")
    ] = True
    websocket: Annotated[
        bool, flag("Whether WebSocket upgrades are passed on (to HTTP/1.1 endpoints).")
    ] = True
    cors: Annotated[Cors | None, part("Which pages of other origins may read responses.")] = None
    compression: Annotated[
        Compression | None, part("Compress responses. Absent: they pass as they are.")
    ] = None


class ClusterEndpoint(_Model, frozen=True, kw_only=True):
    """One backend."""

    address: Annotated[str, text("Where it listens.", form="address")]
    weight: Annotated[
        int, count("Its share of the requests, relative to the others.", least=1, most=1000)
    ] = 100

    def target(self) -> Address:
        """The address, read."""
        return parse_address(self.address)


class Cluster(_Model, frozen=True, kw_only=True):
    """Backends that serve the same, how one is picked, and how connections to them are kept."""

    name: Annotated[str, INTERNAL] = ""
    endpoints: Annotated[tuple[ClusterEndpoint, ...], part("The backends.")]
    policy: Annotated[PolicyName, choice("How the endpoint of a request is picked.")] = (
        "least_connections"
    )
    hash_on: Annotated[
        str | None,
        text(
            "What `ring_hash` hashes: `header:NAME`, `metadata:NAME` (gRPC metadata), "
            "`cookie:NAME`, `query:NAME`, `path`, `authority` or `client` (its address). "
            "Required for `ring_hash`.",
            form="hash source",
        ),
    ] = None
    hash_fallback: Annotated[
        HashFallback,
        choice(
            "What `ring_hash` does with a request that lacks the `hash_on` value: pick at random, "
            "in turn, by the client's address, or reject it with 503."
        ),
    ] = "random"
    virtual_nodes: Annotated[
        int,
        count("Points on the ring for an endpoint of average weight.", least=1, most=10000),
    ] = 160
    max_endpoints: Annotated[
        int,
        count(
            "Endpoints this cluster may have, those added at run time included.",
            least=1,
            most=65536,
        ),
    ] = 256
    dns_refresh_s: Annotated[
        float, duration("How often host names are looked up again.", least=1.0)
    ] = 30.0
    min_connections: Annotated[
        int,
        count(
            "Connections that each worker keeps open to each endpoint from the start.", most=1024
        ),
    ] = 0
    protocol: Annotated[
        Protocol,
        choice(
            "What the endpoints speak: `h2` without negotiation, `http1`, or `auto`: asked in "
            "HTTP/2, and in HTTP/1.1 once they have answered so."
        ),
    ] = "auto"
    max_connections: Annotated[
        int | None,
        count(
            "Connections of one worker to one endpoint. Absent: 16 with HTTP/2, 1024 with "
            "HTTP/1.1, where each request under way has its own.",
            least=1,
            most=65536,
        ),
    ] = None
    on_cancel: Annotated[
        OnCancel,
        choice(
            "What happens upstream when a client goes away: `abort` resets the stream or closes "
            "the HTTP/1.1 connection at once, `drain` reads the response to its end, for backends "
            "that don't bear an abort."
        ),
    ] = "abort"
    drain_limit: Annotated[
        int | None,
        size("Bytes after which a response that is drained is aborted all the same."),
    ] = None
    proxy_protocol: Annotated[
        ProxyProtocol | None,
        choice(
            "Begin each connection with a PROXY protocol header of this version. Clients then "
            "share no connections."
        ),
    ] = None
    max_streams_per_connection: Annotated[
        int,
        count("Streams on one connection, when the endpoint allows that many or more.", least=1),
    ] = 1000
    stream_share: Annotated[
        float,
        share(
            "Share of the streams a connection may carry after which another one is opened.",
            least=0.01,
        ),
    ] = 1.0
    max_idle: Annotated[
        int, count("Connections without streams that one worker keeps to each endpoint.")
    ] = 100
    idle_timeout_s: Annotated[
        float | None,
        duration(
            "A connection without streams for so long is closed, down to `min_connections`.",
            least=0.01,
            none="never closed for being idle",
        ),
    ] = 15.0
    connect_timeout_s: Annotated[
        float, duration("How long it may take to connect.", least=0.001)
    ] = 5.0
    keepalive_interval_s: Annotated[
        float | None,
        duration(
            "While streams are open and nothing arrives, a PING is sent so often. A gRPC server "
            "that does not permit it ends the connection with GOAWAY `too_many_pings`.",
            least=0.01,
            none="no PING",
        ),
    ] = 5.0
    keepalive_timeout_s: Annotated[
        float,
        duration("A connection whose PING is unanswered for so long is lost.", least=0.01),
    ] = 1.0
    max_connection_age_s: Annotated[
        float | None,
        duration(
            "A connection that old takes no new streams.", least=0.1, none="connections never age"
        ),
    ] = 1800.0
    max_connection_age_jitter: Annotated[
        float,
        share("`max_connection_age` is made longer or shorter by up to this share, at random."),
    ] = 0.1
    max_connection_age_grace_s: Annotated[
        float | None,
        duration(
            "How long the streams of an aged connection may go on.",
            none="until they end by themselves",
        ),
    ] = None
    backoff_base_s: Annotated[
        float,
        duration(
            "Wait after a failed connect; doubles with each further failure, with jitter.",
            least=0.001,
        ),
    ] = 0.1
    backoff_max_s: Annotated[
        float, duration("The longest wait after a failed connect.", least=0.001)
    ] = 10.0
    max_pending: Annotated[
        int,
        count("Requests of one worker that wait for a connection; above it the answer is 503."),
    ] = 1024
    pending_timeout_s: Annotated[
        float,
        duration("How long a request waits for a connection; then the answer is 503.", least=0.001),
    ] = 5.0
    max_retries: Annotated[
        int,
        count(
            "How often a request is tried again, and only when the endpoint certainly did not "
            "process it.",
            most=16,
        ),
    ] = 2


class Config(_Model, frozen=True, kw_only=True):
    """The whole file."""

    gateway: Annotated[Gateway, part("The process.")] = Gateway()
    http1: Annotated[Http1, part("Limits of HTTP/1.1 connections.")] = Http1()
    http2: Annotated[Http2, part("Limits of HTTP/2 connections.")] = Http2()
    listeners: Annotated[tuple[Listener, ...], part("Where connections are accepted.")]
    tls: Annotated[dict[str, Tls], part("Certificates.")] = {}
    routes: Annotated[tuple[Route, ...], part("Which requests go where.")]
    clusters: Annotated[dict[str, Cluster], part("Backends.")]
