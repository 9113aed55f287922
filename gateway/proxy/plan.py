"""What a request head leads to, computed once for equal heads of a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.net.addresses import Peers
    from gateway.proxy.downstream import Site
    from gateway.proxy.translation import Translation
    from gateway.wire.codec import Codec, Stream

from gateway import config
from gateway.errors import Kind
from gateway.head import Field, Fields, RequestHead
from gateway.upstream.cluster import Cluster
from gateway.wire.forwarding import join_cookies

_NEVER = float("inf")
_GET: Field = (b":method", b"GET")


class Plan:
    """The head as the exchange sees it, the route, the cluster, and the fields to forward.

    ``client`` is the client's address as far as hops are trusted, ``peers`` the two ends of its
    connection. Without a ``route`` the request fails: ``problem`` and ``detail`` say how. With an
    ``answer`` it is answered by that head alone. ``response_extra`` are fields for every response.
    ``translations`` make what stands between the exchange and the client, the first one next to
    the client. Times are in seconds, infinite where there is no limit; ``max_body`` is in octets,
    -1 without a limit.
    """

    __slots__ = (
        "_http1_fields",
        "answer",
        "client",
        "cluster",
        "detail",
        "fields",
        "has_request_id",
        "head",
        "idle_timeout",
        "max_body",
        "peers",
        "problem",
        "response_extra",
        "route",
        "site",
        "timeout",
        "translations",
    )

    def __init__(self, site: Site, head: RequestHead, client: bytes, peers: Peers) -> None:
        self.site = site
        self.head = head
        self.client = client
        self.peers = peers
        self.route: config.Route | None = None
        self.cluster: Cluster | None = None
        self.fields: Fields = ()
        self.has_request_id = True
        self.problem = Kind.INTERNAL
        self.detail = ""
        self.answer: Fields | None = None
        self.response_extra: Fields = ()
        self.translations: tuple[Callable[[Codec, Stream], Translation], ...] = ()
        self.timeout = _NEVER
        self.idle_timeout = _NEVER
        self.max_body = -1
        self._http1_fields: Fields | None = None

    def fails(self, problem: Kind, detail: str) -> Plan:
        """The request is not forwarded."""
        self.problem = problem
        self.detail = detail
        return self

    def forwards(self, route: config.Route, cluster: Cluster, fields: Fields) -> None:
        """The request goes to an endpoint of ``cluster``."""
        self.route = route
        self.cluster = cluster
        self.fields = fields
        self.has_request_id = self.head.get(b"x-request-id") is not None
        if route.timeout_s is not None:
            self.timeout = route.timeout_s
        if route.idle_timeout_s is not None:
            self.idle_timeout = route.idle_timeout_s
        if route.max_request_body is not None:
            self.max_body = route.max_request_body

    def http1_fields(self) -> Fields:
        """The fields to forward to an endpoint that speaks HTTP/1.1: one ``cookie``, and an
        extended CONNECT is a GET that asks for an upgrade."""
        if self._http1_fields is None:
            fields = join_cookies(self.fields)
            if self.head.protocol is not None and self.head.method == b"CONNECT":
                fields = (_GET, *fields[1:])
            self._http1_fields = fields
        return self._http1_fields
