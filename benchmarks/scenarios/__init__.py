"""The scenarios, one file each."""

from __future__ import annotations

from typing import Final

from benchmarks.scenarios import (
    bodies,
    codec,
    grpc_tokens,
    grpc_unary,
    http1_1k,
    http1_to_h2,
    ring,
    scale,
    sse_tokens,
    stall,
    tls_1k,
    tls_handshakes,
    tls_idle,
    tls_ttfb,
    unary_1k,
)
from benchmarks.scenarios.base import Figure, Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        unary_1k,
        http1_1k,
        http1_to_h2,
        bodies,
        grpc_unary,
        grpc_tokens,
        sse_tokens,
        scale,
        ring,
        stall,
        codec,
        tls_1k,
        tls_handshakes,
        tls_idle,
        tls_ttfb,
    )
}
"""By name, in the order in which they are run."""

__all__ = ["SCENARIOS", "Figure", "Scenario"]
