"""Server-sent events as model servers send them: 50 a second on each stream of HTTP/1.1."""

from __future__ import annotations

from benchmarks.backends import StreamPlan
from benchmarks.harness import Harness, Results
from benchmarks.scenarios import grpc_tokens
from benchmarks.scenarios.base import Figure, Scenario

STREAMS = (100, 500, 1000)
PLAN = StreamPlan(rate=50, size=64, events=True)
FIGURES = (Figure("cpu_us", "CPU us/event", 2), *grpc_tokens.FIGURES[1:])


def run(harness: Harness) -> Results:
    """As for gRPC streams; a connection carries one stream on either side."""
    return grpc_tokens.run(harness, PLAN, STREAMS)


SCENARIO = Scenario("sse-tokens", "Server-sent events, 50/s of 64 bytes each", FIGURES, run)
