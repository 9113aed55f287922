"""A client, a site and a cluster around the exchanges under test."""

from __future__ import annotations

from gateway import config
from tests.rig import (
    Backend,
    Message,
    Rig,
    request,
)

POST = request(b"POST")


class Journey:
    """One client, one cluster of one or two endpoints."""

    def __init__(self, rig: Rig, *backends: Backend, route: dict | None = None, **settings) -> None:
        self.rig = rig
        self.backends = backends
        self.cluster = rig.cluster(*(b.address for b in backends), **settings)
        self.site = rig.site(self.cluster, routes=[config.Route(cluster="c", **(route or {}))])
        self.client = rig.connect(self.site)

    def warm(self) -> None:
        """Open a connection to every endpoint, so that nothing has to wait for one."""
        self.cluster.prepare()
        pools = [
            pool
            for pool in self.cluster.pools.values()
            if pool.endpoint.key in {backend.address for backend in self.backends}
        ]
        for pool in pools:
            if not pool.connections:
                pool._dial()
        self.rig.until(lambda: all(p.connections and p.connections[0].settled for p in pools))

    def over(self, stream_id: int) -> Message:
        """Wait for the end of the client's stream."""
        message = self.client.message(stream_id)
        self.rig.until(lambda: message.over, f"the end of {message}")
        return message
