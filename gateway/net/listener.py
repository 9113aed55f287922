"""Accepting connections.

A listening socket is a target of the reactor like any other. It accepts a few connections per
turn, so that a burst of them does not starve those that are served. Above the limit a connection
is closed as soon as it was accepted: the client learns of it at once instead of waiting in a queue
that nobody empties. When descriptors run out (EMFILE), accepting pauses and the kernel's queue
holds the connections, because an accept that fails leaves the socket ready and would spin.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Final

from gateway.net.addresses import address_of
from gateway.net.reactor import NEVER, READABLE, Reactor, Target
from gateway.telemetry import Counter

ACCEPTS_PER_TURN: Final = 32
PAUSE_S: Final = 0.2
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Accepted = Callable[[socket.socket, str], None]
"""What is done with a connection and the address of its peer, without the port."""


class Acceptor(Target):
    """One listening socket. ``limit`` is the number of connections that may be open at a time."""

    def __init__(
        self, reactor: Reactor, sock: socket.socket, limit: int, accepted: Accepted
    ) -> None:
        self.sock = sock
        self.open_connections = 0
        self._reactor = reactor
        self._limit = limit
        self._accepted = accepted
        self._paused_until = NEVER
        self._closed = False
        sock.setblocking(False)
        reactor.register(sock.fileno(), self, READABLE)

    def ready(self, events: int, now: float) -> None:
        """Accept what waits."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, sockaddr = self.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._reactor.count(Counter.ACCEPT_ERRORS)
                if error.errno in _EXHAUSTED:
                    self._pause(now)
                    return
                # ECONNABORTED and its like: that connection went away, others may wait.
                continue
            if self.open_connections >= self._limit:
                self._reactor.count(Counter.DOWNSTREAM_CONNECTIONS_REFUSED)
                sock.close()
                continue
            sock.setblocking(False)
            self._reactor.count(Counter.DOWNSTREAM_CONNECTIONS_ACCEPTED)
            self._reactor.count(Counter.DOWNSTREAM_CONNECTIONS_OPEN)
            self.open_connections += 1
            try:
                self._accepted(sock, _client(sock.family, sockaddr))
            except BaseException:
                sock.close()
                self.released()
                raise

    def released(self) -> None:
        """A connection that came from here was closed."""
        self.open_connections -= 1
        self._reactor.count(Counter.DOWNSTREAM_CONNECTIONS_OPEN, -1)

    def _pause(self, now: float) -> None:
        self._reactor.modify(self.sock.fileno(), 0)
        self._paused_until = now + PAUSE_S
        self._reactor.note(self._paused_until)

    def check(self, now: float) -> float:
        """Accept again when the pause is over."""
        if now >= self._paused_until:
            self._paused_until = NEVER
            self._reactor.modify(self.sock.fileno(), READABLE)
        return self._paused_until

    def fail(self, detail: str) -> None:
        """A bug struck while a connection was set up; others may do better."""

    def close(self) -> None:
        """Accept no more. The parent may still hold the same socket."""
        if not self._closed:
            self._closed = True
            self._reactor.unregister(self.sock.fileno())
            self.sock.close()


def _client(family: int, sockaddr: object) -> str:
    if family == socket.AF_UNIX:
        return ""
    address = address_of(family, sockaddr)
    return getattr(address, "host", "")
