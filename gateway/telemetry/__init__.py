"""What happened, in plain memory: counters shared by all workers.

Level 1: no clocks, no sockets, no logging. Rendering is the admin process's business.
"""

from __future__ import annotations

from gateway.telemetry.counters import FAILURES, GAUGES, NAMES, Counter
from gateway.telemetry.shared import InFlight, Row, SharedMemory, SlotsExhausted

__all__ = [
    "FAILURES",
    "GAUGES",
    "NAMES",
    "Counter",
    "InFlight",
    "Row",
    "SharedMemory",
    "SlotsExhausted",
]
