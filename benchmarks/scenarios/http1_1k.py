"""Requests for 1 KiB, HTTP/1.1 on both sides."""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.scenarios.base import REQUESTS, Scenario, Target

SHAPES = (Shape(10, 1, 8_000), Shape(64, 1, 10_000))


def run(harness: Harness, shapes: tuple[Shape, ...] = SHAPES) -> Results:
    """Each shape in turn, all proxies running throughout. Connections are kept on both sides."""
    results = Results()
    with (
        harness.web_backend() as ports,
        harness.proxies(
            results, "start", ports, harness.options.peers, http1_in=True, http1_out=True
        ) as proxies,
    ):
        for shape in shapes:
            harness.request_rounds(results, shape.label, proxies, Load(shape, "/1k", http1=True))
    return results


SCENARIO = Scenario(
    "http1-1k",
    "Requests for 1 KiB, HTTP/1.1",
    REQUESTS,
    run,
    (Target("64x1", "envoy", 0.7), Target("64x1", "nginx", 1.5)),
)
