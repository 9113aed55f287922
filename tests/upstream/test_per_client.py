"""Pools of one client each, and their end."""

from __future__ import annotations

import socket

from gateway.config import TcpAddress
from gateway.net.addresses import Peers
from tests.rig import Rig

ONE = Peers(TcpAddress("203.0.113.5", 4711), TcpAddress("198.51.100.1", 443))
OTHER = Peers(TcpAddress("203.0.113.6", 4711), TcpAddress("198.51.100.1", 443))


class Waiting:
    """A request that waits for a connection."""

    def __init__(self, rig: Rig) -> None:
        self.wait_until = rig.reactor.now + 1000.0
        self.waiting = False
        self.got: list[object] = []

    def on_connection(self, connection: object) -> None:
        self.got.append(connection)

    def on_unavailable(self, failure: object) -> None:
        self.got.append(failure)


def test_a_pool_goes_with_its_last_connection(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        pool = rig.pool(address, protocol="http1", proxy_protocol="v1")
        own = pool.of_client(ONE)
        assert pool.of_client(ONE) is own
        assert pool.of_client(OTHER) is not own
        checks = len(rig.reactor._checks) if hasattr(rig.reactor, "_checks") else None
        request = Waiting(rig)
        assert own.wait(request, rig.reactor.now)
        rig.until(lambda: request.got)
        with server.accept()[0] as accepted:
            rig.until(lambda: not rig.reactor.flush_list)
            rig.reactor.turn(0.0)
            header = b"PROXY TCP4 203.0.113.5 198.51.100.1 4711 443\r\n"
            accepted.settimeout(20)
            assert accepted.recv(200) == header
            assert list(pool._clients) == [own, pool.of_client(OTHER)]
        rig.until(lambda: own not in list(pool._clients), "the pool is forgotten")
        if checks is not None:
            assert len(rig.reactor._checks) == checks - 1
        pool._clients.forget(OTHER)
