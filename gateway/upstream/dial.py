"""Making one connection, without blocking and without a task."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from gateway.net.addresses import SocketAddress
from gateway.net.reactor import NEVER, WRITABLE, Reactor, Target

Connected = Callable[[socket.socket], None]
Failed = Callable[[str, bool], None]
"""What went wrong, and whether it was the time limit."""


class Dial(Target):
    """A connect under way. Ends with one call of ``connected`` or ``failed``.

    ``failed`` may be called before the constructor returns; ``timeout_s`` bounds the whole.
    """

    def __init__(
        self,
        reactor: Reactor,
        target: SocketAddress,
        timeout_s: float,
        connected: Connected,
        failed: Failed,
    ) -> None:
        self._reactor = reactor
        self._connected = connected
        self._failed = failed
        self._timeout_s = timeout_s
        self._until = NEVER
        self._sock: socket.socket | None = None
        try:
            sock = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        except OSError as error:
            failed(error.strerror or str(error), False)
            return
        sock.setblocking(False)
        if target.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
        code = sock.connect_ex(target.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            failed(os.strerror(code), False)
            return
        # A connect that succeeded at once (unix sockets) is writable at once, too.
        self._sock = sock
        self._until = reactor.now + timeout_s
        reactor.register(sock.fileno(), self, WRITABLE)
        reactor.note(self._until)

    @property
    def pending(self) -> bool:
        """Whether it is still under way."""
        return self._sock is not None

    def ready(self, events: int, now: float) -> None:
        """The connect succeeded or failed."""
        sock = self._detach()
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            sock.close()
            self._failed(os.strerror(code), False)
        else:
            self._connected(sock)

    def check(self, now: float) -> float:
        """Give up when the time is over."""
        if now >= self._until:
            sock = self._detach()
            if sock is not None:
                sock.close()
                self._failed(f"no connection within {self._timeout_s:g} s", True)
        return self._until

    def fail(self, detail: str) -> None:
        """Give up because of ``detail``."""
        if self.pending:
            self.cancel()
            self._failed(detail, False)

    def cancel(self) -> None:
        """Give up without a call."""
        sock = self._detach()
        if sock is not None:
            sock.close()

    def _detach(self) -> socket.socket | None:
        sock, self._sock, self._until = self._sock, None, NEVER
        if sock is not None:
            self._reactor.unregister(sock.fileno())
        return sock


def _keep_alive(sock: socket.socket) -> None:
    """TCP's own probes, which find a dead host behind a stream that is silent for long.

    gRPC servers allow few PINGs without data (see :mod:`gateway.wire.http2`), TCP any number.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
