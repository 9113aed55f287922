"""Counting frames that cost us work and bring the peer nothing (RFC 9113 section 10.5).

Each kind may come a number of times in an interval; one more is a flood and ends the connection
with ENHANCE_YOUR_CALM. The counts fall to zero when the interval is over.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from gateway.config import Http2


class Flood(IntEnum):
    """What is counted."""

    RESETS = 0
    INDUCED_RESETS = 1
    PINGS = 2
    SETTINGS = 3
    EMPTY_DATA = 4
    WINDOW_UPDATES = 5
    IGNORED = 6


COUNTER_OF: Final = (
    "reset_flood",
    "induced_reset_flood",
    "ping_flood",
    "settings_flood",
    "empty_data_flood",
    "window_update_flood",
    "priority_flood",
)
"""The counter that rises when the limit of a kind is passed, by kind."""


class FloodGuard:
    """The counts of one connection."""

    __slots__ = ("_counts", "_interval_s", "_limits", "_until")

    def __init__(self, limits: Http2, now: float) -> None:
        self._limits = (
            limits.max_resets,
            limits.max_induced_resets,
            limits.max_pings,
            limits.max_settings,
            limits.max_empty_data,
            limits.max_window_updates,
            limits.max_ignored_frames,
        )
        self._interval_s = limits.flood_interval_s
        self._counts = [0] * len(self._limits)
        self._until = now + self._interval_s

    def exceeded(self, kind: int, now: float) -> bool:
        """Count one frame of ``kind``; true when it is one too many."""
        if now >= self._until:
            self._until = now + self._interval_s
            self._counts = [0] * len(self._limits)
        self._counts[kind] += 1
        return self._counts[kind] > self._limits[kind]
