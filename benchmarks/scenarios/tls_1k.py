"""Requests for 1 KiB, HTTP/2 over TLS 1.3 in front, cleartext HTTP/2 behind."""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.scenarios.base import REQUESTS, Scenario, Target

SHAPES = (Shape(10, 10, 15_000), Shape(64, 1, 10_000), Shape(1, 1, 2_500))


def run(harness: Harness, shapes: tuple[Shape, ...] = SHAPES) -> Results:
    """Each shape in turn, all proxies running throughout. The handshakes of a shape's connections
    are in its figures."""
    results = Results()
    with (
        harness.nghttpds() as ports,
        harness.proxies(
            results, "start", ports, harness.options.peers, tls=harness.material()
        ) as proxies,
    ):
        for shape in shapes:
            harness.request_rounds(results, shape.label, proxies, Load(shape, "/1k", tls=True))
    return results


SCENARIO = Scenario(
    "tls-1k",
    "Requests for 1 KiB, TLS 1.3",
    REQUESTS,
    run,
    (Target("10x10", "envoy", 0.8), Target("64x1", "envoy", 0.8)),
)
