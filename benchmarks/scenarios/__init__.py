"""The scenarios, one file each."""

from __future__ import annotations

from typing import Final

from benchmarks.scenarios import (
    bodies,
    codec,
    grpc_tokens,
    grpc_unary,
    ring,
    scale,
    stall,
    unary_1k,
)
from benchmarks.scenarios.base import Figure, Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (unary_1k, bodies, grpc_unary, grpc_tokens, scale, ring, stall, codec)
}
"""By name, in the order in which they are run."""

__all__ = ["SCENARIOS", "Figure", "Scenario"]
