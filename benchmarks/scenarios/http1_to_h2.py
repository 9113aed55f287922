"""Requests for 1 KiB, translated: HTTP/1.1 to HTTP/2, and the other way."""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.scenarios.base import REQUESTS, Scenario

DOWN = Shape(64, 1, 10_000)
UP = Shape(10, 10, 10_000)


def run(harness: Harness, down: Shape = DOWN, up: Shape = UP) -> Results:
    """Clients of HTTP/1.1 before endpoints of HTTP/2, then clients of HTTP/2 before the other."""
    results = Results()
    peers = harness.options.peers
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, peers, http1_in=True) as proxies,
    ):
        case = f"HTTP/1.1 to HTTP/2, {down.label}"
        harness.request_rounds(results, case, proxies, Load(down, "/1k", http1=True))
    with (
        harness.web_backend() as ports,
        harness.proxies(results, "start back", ports, peers, http1_out=True) as proxies,
    ):
        case = f"HTTP/2 to HTTP/1.1, {up.label}"
        harness.request_rounds(results, case, proxies, Load(up, "/1k"))
    return results


SCENARIO = Scenario("http1-to-h2", "Requests for 1 KiB, translated", REQUESTS, run)
