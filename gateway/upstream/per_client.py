"""Connections of one client each, to endpoints that want to be told whose a connection is.

A PROXY protocol header stands at the beginning of a connection and holds for all of it, so a
connection that has one serves the requests of that client's connection alone. Each client's
connection gets a pool of its own, and with the last connection of the pool it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.net.addresses import Peers

if TYPE_CHECKING:
    from gateway.upstream.pool import Pool


class ClientPools:
    """The pools of one endpoint, by the two ends of the client's connection."""

    def __init__(self, make: Callable[[Peers], Pool]) -> None:
        self._make = make
        self._pools: dict[Peers, Pool] = {}

    def get(self, peers: Peers) -> Pool:
        """The pool of a client's connection, made when there is none."""
        pool = self._pools.get(peers)
        if pool is None:
            pool = self._pools[peers] = self._make(peers)
        return pool

    def forget(self, peers: Peers) -> None:
        """Let go of a pool that has nothing open, under way or waiting."""
        pool = self._pools.pop(peers, None)
        if pool is not None:
            pool.drain()

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())
