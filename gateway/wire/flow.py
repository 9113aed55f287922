"""How large a receive window must be: the bandwidth-delay product, measured.

A window smaller than what the path holds in one round trip makes the sender wait; a larger one
only costs memory when the reader stalls. So a window starts at the configured size and is doubled
when a whole round trip's worth of bytes came close to filling it. The round trip is timed with a
PING, and only while a stream eats its window (a short exchange never sends one). The method is that
of gRPC's BDP estimator ("gRPC-Go performance improvements", 2017), with another threshold: our PING
leaves when half a window was consumed, so a sender that the window holds up can have no more than
the other half under way until the answer. A third of the window in one round trip is therefore
taken as a sign that the window is what limits.
"""

from __future__ import annotations

from typing import Final

BDP_PING: Final = b"gw-bdp\0\0"
"""The payload that tells a measuring PING from others."""


class BandwidthDelay:
    """The estimator of one connection. ``limit`` is the largest window, in octets."""

    __slots__ = ("_sample", "_started", "limit", "rtt_s", "sampling", "window")

    def __init__(self, window: int, limit: int) -> None:
        self.window = window
        self.limit = limit
        self.sampling = False
        self.rtt_s = 0.0
        self._sample = 0
        self._started = 0.0

    def start(self, now: float) -> bool:
        """Begin a sample. True when a PING with :data:`BDP_PING` is to be sent."""
        if self.sampling or self.window >= self.limit:
            return False
        self.sampling = True
        self._sample = 0
        self._started = now
        return True

    def add(self, octets: int) -> None:
        """Count flow-controlled octets that arrived during a sample."""
        self._sample += octets

    def finish(self, now: float) -> int:
        """End the sample at the PING's acknowledgement; the new window, or 0 when it stays."""
        if not self.sampling:
            return 0
        self.sampling = False
        rtt = now - self._started
        self.rtt_s = rtt if self.rtt_s == 0.0 else 0.875 * self.rtt_s + 0.125 * rtt
        if self._sample * 3 < self.window:
            return 0
        self.window = min(self.limit, max(2 * self._sample, 2 * self.window))
        return self.window
