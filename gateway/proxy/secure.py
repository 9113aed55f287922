"""TLS at the door of a listener: its settings, and its handshakes under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a gateway without TLS does not load OpenSSL
    from gateway.proxy.opening import Opening
    from gateway.tls.server import ServerContext


class TlsEntry(NamedTuple):
    """What a listener says of TLS: a part of :class:`gateway.config.tls.Tls`."""

    context: ServerContext
    handshake_timeout_s: float
    handshakes: Handshakes


class Handshakes:
    """The handshakes under way, at most ``most``: who comes then drives out the one that began
    first, so that connections which say nothing cannot keep others out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[Opening, None] = {}

    def begin(self, opening: Opening) -> Opening | None:
        """One more; the one to be closed for it, if any."""
        evicted = None
        if len(self._open) >= self._most:
            evicted = next(iter(self._open))
            del self._open[evicted]
        self._open[opening] = None
        return evicted

    def end(self, opening: Opening) -> None:
        """It is complete, or failed. Idempotent."""
        self._open.pop(opening, None)

    def __len__(self) -> int:
        return len(self._open)
