"""What a request head leads to, computed once for equal heads of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.proxy.downstream import Site

from gateway import config
from gateway.errors import Kind
from gateway.head import Fields
from gateway.upstream.cluster import Cluster

_NEVER = float("inf")


class Plan:
    """The route, the cluster, and the fields to forward.

    Without a ``route`` the request fails: ``problem`` and ``detail`` say how. Times are in seconds,
    infinite where there is no limit; ``max_body`` is in octets, -1 without a limit.
    """

    __slots__ = (
        "cluster",
        "detail",
        "fields",
        "has_request_id",
        "idle_timeout",
        "max_body",
        "problem",
        "route",
        "site",
        "timeout",
    )

    def __init__(
        self,
        site: Site,
        route: config.Route | None,
        cluster: Cluster | None,
        fields: Fields,
        has_request_id: bool,
        problem: Kind = Kind.INTERNAL,
        detail: str = "",
    ) -> None:
        self.site = site
        self.route = route
        self.cluster = cluster
        self.fields = fields
        self.has_request_id = has_request_id
        self.problem = problem
        self.detail = detail
        self.timeout = _NEVER
        self.idle_timeout = _NEVER
        self.max_body = -1
        if route is not None:
            if route.timeout_s is not None:
                self.timeout = route.timeout_s
            if route.idle_timeout_s is not None:
                self.idle_timeout = route.idle_timeout_s
            if route.max_request_body is not None:
                self.max_body = route.max_request_body
