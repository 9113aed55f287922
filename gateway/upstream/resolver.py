"""Host names of endpoints to addresses, looked up on Trio and kept fresh."""

from __future__ import annotations

import socket
from typing import cast

import trio

from gateway.config import TcpAddress
from gateway.net.addresses import SockAddr, SocketAddress
from gateway.upstream.cluster import Cluster
from gateway.upstream.pool import Pool


async def resolve(pool: Pool) -> None:
    """Look up the host name of a pool's endpoint."""
    address = cast("TcpAddress", pool.endpoint.address)
    try:
        found = await trio.socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except (OSError, UnicodeError) as error:
        # UnicodeError: a name that no IDNA label can hold.
        pool.unresolved(getattr(error, "strerror", None) or str(error))
        return
    pool.resolved(
        [SocketAddress(family, cast("SockAddr", sockaddr)) for family, _, _, _, sockaddr in found]
    )


async def resolve_all(cluster: Cluster) -> None:
    """Look up all host names of a cluster at once."""
    cluster.unresolved = trio.Event()
    async with trio.open_nursery() as nursery:
        for pool in list(cluster.pools.values()):
            if pool.named:
                nursery.start_soon(resolve, pool)


async def keep_resolved(cluster: Cluster) -> None:
    """Look host names up every ``dns_refresh``, and at once when an endpoint was added."""
    while True:
        with trio.move_on_after(cluster.settings.dns_refresh_s):
            await cluster.unresolved.wait()
        await resolve_all(cluster)
