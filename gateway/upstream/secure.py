"""TLS with endpoints: what is between a connected socket and a connection that takes streams."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway import config
from gateway.config import TcpAddress
from gateway.net.reactor import Reactor
from gateway.net.transport import Transport
from gateway.telemetry import Counter
from gateway.wire.codec import NEVER, Codec

if TYPE_CHECKING:
    from gateway.tls.session import ClientSession

MAX_TICKETS = 8
"""Tickets kept for one endpoint: each resumes one connection."""


def server_name(cluster: config.Cluster, address: config.Address) -> str:
    """Whom an endpoint must prove to be."""
    if cluster.tls.server_name is not None:
        return cluster.tls.server_name
    return address.host if isinstance(address, TcpAddress) else "localhost"


class Handshake(Codec):
    """The codec of a connection to an endpoint until its TLS handshake is over.

    Ends with one call of ``done`` or ``failed`` (what went wrong, and whether it was the time
    limit). ``before`` is what goes out in cleartext first.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        session: ClientSession,
        timeout_s: float,
        stall_timeout_s: float | None,
        before: bytes,
        done: Callable[[Transport], None],
        failed: Callable[[str, bool], None],
    ) -> None:
        transport = Transport(reactor, sock, stall_timeout_s, upstream=True)
        self.begin_codec(True, 65_536, reactor.flush_list, transport)
        self.session = session
        self.transport = transport
        self.deadline = reactor.now + timeout_s
        self._reactor = reactor
        self._timeout_s = timeout_s
        self._timed_out = False
        self._cancelled = False
        self._done = done
        self._failed = failed
        transport.secure(session, before)
        transport.start(self, _Above(self))
        self.touch()

    def check(self, now: float) -> None:
        """Give up when the time is over."""
        if now >= self.deadline:
            self.deadline = NEVER
            self._timed_out = True
            self.transport.close(f"no TLS handshake within {self._timeout_s:g} s")

    def cancel(self) -> None:
        """Give up without a call."""
        self._cancelled = True
        self.transport.close("not wanted any more")

    def over(self) -> None:
        """The handshake is complete."""
        self._reactor.count(Counter.UPSTREAM_TLS_HANDSHAKES)
        if self.session.resumed:
            self._reactor.count(Counter.UPSTREAM_TLS_RESUMPTIONS)
        done, self._done = self._done, _nothing
        self._failed = _nothing
        done(self.transport)

    def gone(self, detail: str) -> None:
        """The socket is closed."""
        failed, self._failed = self._failed, _nothing
        self._done = _nothing
        if not self._cancelled:
            self._reactor.count(Counter.UPSTREAM_TLS_FAILED)
            failed(detail, self._timed_out)


def _nothing(*_: object) -> None:
    """In place of what was called: they hold the handshake, and it held them."""


class _Above:
    """The peer of a transport whose handshake goes on."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def closed(self, detail: str) -> None:
        self._handshake.gone(detail)

    def check(self, now: float) -> float:
        return NEVER

    def secured(self, now: float) -> None:
        self._handshake.over()
