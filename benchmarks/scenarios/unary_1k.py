"""Requests for 1 KiB, cleartext HTTP/2 on both sides."""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.scenarios.base import REQUESTS, Scenario

SHAPES = (Shape(10, 10, 15_000), Shape(64, 1, 10_000), Shape(1, 1, 2_500))


def run(harness: Harness, shapes: tuple[Shape, ...] = SHAPES) -> Results:
    """Each shape in turn, all proxies running throughout."""
    results = Results()
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, harness.options.peers) as proxies,
    ):
        for shape in shapes:
            harness.request_rounds(results, shape.label, proxies, Load(shape, "/1k"))
    return results


SCENARIO = Scenario("unary-1k", "Requests for 1 KiB", REQUESTS, run)
