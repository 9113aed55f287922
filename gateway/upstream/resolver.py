"""Host names of endpoints to addresses, looked up on Trio and kept fresh."""

from __future__ import annotations

import socket
from typing import cast

import trio

from gateway.config import Address, TcpAddress
from gateway.net.addresses import SockAddr, SocketAddress, socket_address
from gateway.upstream.cluster import Cluster
from gateway.upstream.pool import Pool


async def resolve(pool: Pool) -> None:
    """Find the addresses of a pool's endpoint; on failure the old ones stay in use."""
    address = cast("Address", pool.endpoint.address)
    literal = socket_address(address)
    if literal is not None:
        pool.addresses = [literal]
        return
    assert isinstance(address, TcpAddress)
    try:
        found = await trio.socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except OSError as error:
        pool.last_error = f"{address}: {error.strerror or error}"
        return
    pool.addresses = [
        SocketAddress(family, cast("SockAddr", sockaddr)) for family, _, _, _, sockaddr in found
    ]


async def resolve_all(cluster: Cluster) -> None:
    """Look up all endpoints of a cluster at once."""
    async with trio.open_nursery() as nursery:
        for pool in list(cluster.pools.values()):
            nursery.start_soon(resolve, pool)


async def keep_resolved(cluster: Cluster) -> None:
    """Look host names up again every ``dns_refresh``."""
    while True:
        await trio.sleep(cluster.settings.dns_refresh_s)
        await resolve_all(cluster)
