"""A cluster: endpoints that serve the same, one policy, one pool each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import trio

from gateway import config
from gateway.balance import Endpoint, PickRequest, make_policy
from gateway.net.reactor import Reactor
from gateway.telemetry import Row
from gateway.upstream.pool import Pool

if TYPE_CHECKING:
    from gateway.tls.client import ClientContext

NEVER: Final = float("inf")


class Cluster:
    """Picks endpoints and owns their pools."""

    def __init__(
        self, reactor: Reactor, row: Row, cluster: config.Cluster, settings: config.Config
    ) -> None:
        self.name = cluster.name
        self.settings = cluster
        self.policy = make_policy(cluster)
        self._tls: ClientContext | None = None
        if any(endpoint.secure for endpoint in cluster.endpoints):
            # Here, because it loads OpenSSL.
            from gateway.upstream.tls_context import client_context

            self._tls = client_context(cluster)
        self.pools: dict[Endpoint, Pool] = {}
        self.draining: set[Pool] = set()
        self._reactor = reactor
        self._row = row
        self._all_settings = settings
        self._pending = [0]
        # Set when there is an endpoint whose host name was not looked up yet.
        self.unresolved = trio.Event()
        self.update(cluster.endpoints)

    def update(self, endpoints: Sequence[config.ClusterEndpoint]) -> None:
        """Replace the endpoints: add, remove and re-weight in one step.

        Streams in flight finish on the endpoints they are on. An endpoint that stays keeps its
        connections.
        """
        known = {endpoint.key: endpoint for endpoint in self.pools}
        current: list[Endpoint] = []
        for wanted in endpoints:
            key = str(wanted.target())
            endpoint = known.pop(key, None)
            if endpoint is None:
                endpoint = Endpoint(
                    key, wanted.target(), wanted.weight, self._row.claim(f"{self.name}/{key}")
                )
                pool = Pool(
                    self._reactor,
                    endpoint,
                    self.settings,
                    self._all_settings,
                    self._pending,
                    tls=self._tls if wanted.secure else None,
                )
                self.pools[endpoint] = pool
                if pool.named:
                    self.unresolved.set()
            else:
                endpoint.weight = wanted.weight
            current.append(endpoint)
        # They leave the choice together: no request that waits moves on to one that goes, too.
        for endpoint in known.values():
            endpoint.draining = True
        self.policy.update(current)
        for endpoint in known.values():
            self._remove(endpoint)
        self._reactor.wake()

    def _remove(self, endpoint: Endpoint) -> None:
        pool = self.pools.pop(endpoint)
        pool.drain()
        self._row.release(f"{self.name}/{endpoint.key}")

    def pick(self, request: PickRequest, tried: Collection[Endpoint], now: float) -> Pool | None:
        """The pool of the endpoint for ``request``, None when there is none to be had.

        When the policy finds no available endpoint, the one whose next connect comes soonest is
        taken if the request can wait for it (``pending_timeout``).
        """
        endpoint = self.policy.pick(request, tried)
        if endpoint is not None:
            return self.pools[endpoint]
        soonest: Pool | None = None
        for candidate, pool in self.pools.items():
            if candidate.available or candidate.draining or candidate in tried:
                continue
            if soonest is None or pool.retry_at < soonest.retry_at:
                soonest = pool
        if soonest is not None and soonest.retry_at - now < self.settings.pending_timeout_s:
            return soonest
        return None

    def why_unavailable(self) -> str:
        """What a request is told that found no endpoint."""
        errors = [pool.last_error for pool in self.pools.values() if pool.last_error]
        text = f"no endpoint of cluster {self.name} is available"
        return f"{text}; last error: {errors[0]}" if errors else text

    def prepare(self) -> None:
        """Open the connections that are wanted from the start."""
        for pool in self.pools.values():
            pool.prepare()

    def close(self) -> None:
        """Retire every connection."""
        for endpoint in list(self.pools):
            self._remove(endpoint)
        self._reactor.wake()
