"""Server-sent events as model servers send them: 50 a second on each stream of HTTP/1.1.

Each stream has a connection of its own on either side. Watch two columns: where p50 nears 20 ms
(the time between two events of a stream) a proxy is behind and passes several events at once,
which makes each of them cheaper; and where the load uses all of its core, that may be the load's
doing. 500 streams are there because they leave room on both cores.
"""

from __future__ import annotations

from benchmarks.backends import StreamPlan
from benchmarks.harness import Harness, Results
from benchmarks.scenarios import grpc_tokens
from benchmarks.scenarios.base import Figure, Scenario, Target

PLAN = StreamPlan(rate=50, size=64, events=True)
STREAMS = (100, 500, 1000)
FIGURES = (
    Figure("cpu_us", "CPU us/event", 2),
    Figure("added_p50_us", "added p50 us", 0),
    Figure("added_p99_us", "added p99 us", 0),
    Figure("p50_us", "p50 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("per_s", "events/s", 0),
    Figure("lost", "lost", 0),
    Figure("load", "load's core %", 0),
    Figure("peak_mib", "peak MiB"),
    Figure("fds", "fds", 0),
    Figure("switches", "switches/event", 3),
)


def run(harness: Harness) -> Results:
    """As for gRPC streams. Who lost events in any round is said below the table."""
    results = grpc_tokens.run(harness, PLAN, STREAMS)
    for case, contenders in results.cells.items():
        for name, figures in contenders.items():
            if lost := sum(figures["lost"].values):
                results.notes.append(f"{case}: {name} lost {lost:,.0f} events")
    return results


SCENARIO = Scenario(
    "sse-tokens",
    "Server-sent events, 50/s of 64 bytes each",
    FIGURES,
    run,
    (Target("1000 streams", "envoy", 0.6),),
)
