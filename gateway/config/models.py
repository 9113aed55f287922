"""The models of ``gateway.toml``, frozen.

One class per table. An attribute in seconds ends in ``_s``; its key in the file has no such ending
and takes a string with a unit (``idle_timeout = "15s"``). Sizes are in bytes. A model made in
Python is not checked: :func:`gateway.config.load` is what checks.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.config.address import Address, parse_address, parse_endpoint
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
)
from gateway.config.limits import KIB, MIB, Http1, Http2, Model
from gateway.config.tls import ClusterTls, Tls

PolicyName = Literal["least_connections", "ring_hash", "round_robin", "random"]
Protocol = Literal["auto", "h2", "http1"]
OnCancel = Literal["abort", "drain"]
ProxyProtocol = Literal["v1", "v2"]
HashFallback = Literal["random", "round_robin", "client", "reject"]


class Gateway(Model, frozen=True, kw_only=True):
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
    state_directory: Annotated[
        str,
        text(
            "Where OCSP responses are kept, so that a restart staples at once.",
            form="path",
        ),
    ] = "gateway-state"
    tls_key_log: Annotated[str | None, INTERNAL] = None


class Listener(Model, frozen=True, kw_only=True):
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
        text("Name of the `[tls.NAME]` table. Absent: cleartext."),
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


class Match(Model, frozen=True, kw_only=True):
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
    ] = msgspec.field(default_factory=dict)


class Cors(Model, frozen=True, kw_only=True):
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


class Compression(Model, frozen=True, kw_only=True):
    """gzip for clients that accept it."""

    http: Annotated[
        bool, flag("Compress textual responses. Event streams are never compressed.")
    ] = True
    grpc: Annotated[bool, flag("Compress the messages of gRPC responses.")] = False
    level: Annotated[int, count("From 1, fast, to 9, small.", least=1, most=9)] = 6
    min_size: Annotated[int, size("Smaller bodies and messages are left alone.")] = KIB
    max_message: Annotated[
        int,
        size(
            "Larger gRPC messages are left alone. A stream may hold so much for a message that is "
            "not whole, and as much again compressed; `max_buffered_bytes` does not count it."
        ),
    ] = 256 * KIB


class Route(Model, frozen=True, kw_only=True):
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
    early_data: Annotated[
        tuple[str, ...],
        texts(
            "What is forwarded when it comes as early data (0-RTT), because it does no harm when "
            "it is sent again: methods, and gRPC methods by their path "
            '(`"/package.Service/Method"`). Others wait for the handshake.',
        ),
    ] = ("GET", "HEAD")
    cors: Annotated[Cors | None, part("Which pages of other origins may read responses.")] = None
    compression: Annotated[
        Compression | None, part("Compress responses. Absent: they pass as they are.")
    ] = None


class ClusterEndpoint(Model, frozen=True, kw_only=True):
    """One backend."""

    address: Annotated[
        str,
        text(
            'Where it listens: `"host:port"`, `"unix:/path"`; with TLS `"https://host:port"` or '
            '`"grpcs://host:port"`.',
            form="address",
        ),
    ]
    weight: Annotated[
        int, count("Its share of the requests, relative to the others.", least=1, most=1000)
    ] = 100

    def target(self) -> Address:
        """The address, read, without its scheme."""
        return parse_endpoint(self.address)[0]

    @property
    def secure(self) -> bool:
        """Whether it is spoken to in TLS."""
        return parse_endpoint(self.address)[1]


class Cluster(Model, frozen=True, kw_only=True):
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
    tls: Annotated[ClusterTls, part("How `https` and `grpcs` endpoints are spoken to.")] = (
        ClusterTls()
    )
    protocol: Annotated[
        Protocol,
        choice(
            "What the endpoints speak: `h2` without negotiation, `http1`, or `auto`: asked in "
            "HTTP/2, and in HTTP/1.1 once they have answered so. With TLS it is what ALPN offers."
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


class Config(Model, frozen=True, kw_only=True):
    """The whole file."""

    gateway: Annotated[Gateway, part("The process.")] = Gateway()
    http1: Annotated[Http1, part("Limits of HTTP/1.1 connections.")] = Http1()
    http2: Annotated[Http2, part("Limits of HTTP/2 connections.")] = Http2()
    listeners: Annotated[tuple[Listener, ...], part("Where connections are accepted.")]
    tls: Annotated[dict[str, Tls], part("How listeners speak TLS.")] = msgspec.field(
        default_factory=dict
    )
    routes: Annotated[tuple[Route, ...], part("Which requests go where.")]
    clusters: Annotated[dict[str, Cluster], part("Backends.")]
