"""A network that is slow: a relay of TCP connections that delays each octet on its way.

    python -m benchmarks.tls.relay TARGET_PORT DELAY_MS

``DELAY_MS`` is that of one way. Prints its port, then serves until it is ended. Where the kernel
has netem that would do the same below TCP; the relay needs no privileges, but TCP's own handshake
with it takes no time, so a client that goes through it waits for a round trip after connecting.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import sys
from contextlib import suppress
from itertools import count
from time import monotonic

_BACKLOG = 256
_CHUNK = 65_536


class Relay:
    """One process's relay. Delays in seconds."""

    def __init__(self, target: int, delay_s: float) -> None:
        self._target = target
        self._delay = delay_s
        # That of epoll waits for whole milliseconds, which is coarse beside delays of ten.
        self._selector = selectors.SelectSelector()
        self._numbers = count()
        # When, a number so that no two are alike, to whom, and what; b"" is the end.
        self._under_way: list[tuple[float, int, socket.socket, bytes]] = []
        self._peers: dict[socket.socket, socket.socket] = {}
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._selector.register(self._listening, selectors.EVENT_READ)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listening.getsockname()[1]
        return port

    def serve(self) -> None:
        """Until the process ends."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        timeout = None
        if self._under_way:
            timeout = max(self._under_way[0][0] - monotonic(), 0.0)
        for key, _ in self._selector.select(timeout):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is self._listening:
                self._accept()
            else:
                self._read(sock)
        while self._under_way and self._under_way[0][0] <= monotonic():
            _, _, sock, data = heapq.heappop(self._under_way)
            self._deliver(sock, data)

    def close(self) -> None:
        """Close all sockets."""
        for sock in [self._listening, *self._peers]:
            sock.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        for sock, peer in ((client, server), (server, client)):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[sock] = peer
            self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(sock)
        at = monotonic() + self._delay
        heapq.heappush(self._under_way, (at, next(self._numbers), self._peers[sock], data))

    def _deliver(self, sock: socket.socket, data: bytes) -> None:
        """Small amounts only, which a socket always takes."""
        with suppress(OSError):
            if data:
                sock.sendall(data)
                return
            sock.shutdown(socket.SHUT_WR)
        if data or sock.fileno() < 0:
            return
        peer = self._peers[sock]
        registered = self._selector.get_map()
        if sock not in registered and peer not in registered:
            for ended in (sock, peer):
                self._peers.pop(ended, None)
                ended.close()


def main() -> None:
    """See the module."""
    relay = Relay(int(sys.argv[1]), float(sys.argv[2]) / 1000)
    print(relay.port, flush=True)
    relay.serve()


if __name__ == "__main__":
    main()
