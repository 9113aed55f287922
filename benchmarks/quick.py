"""The quick look: CPU per request of everyone who is installed, as one line of JSON."""

from __future__ import annotations

import json

from benchmarks.harness import Harness, Results
from benchmarks.load import Shape
from benchmarks.peers import GATEWAY, PEERS
from benchmarks.report import ratio
from benchmarks.scenarios import http1_1k, unary_1k

SHAPES = (Shape(10, 10, 6_000), Shape(64, 1, 4_000))
HTTP1_SHAPES = (Shape(64, 1, 4_000),)
HTTP1 = "http1 "
"""What stands before the shapes of HTTP/1.1."""

ROUNDS = 3
DIGITS = 2


def measure(harness: Harness) -> Results:
    """``unary-1k``, and ``http1-1k`` where its backend (nginx) is installed; the shapes above."""
    results = unary_1k.run(harness, SHAPES)
    if PEERS["nginx"].find() is not None:
        http1 = http1_1k.run(harness, HTTP1_SHAPES)
        results.cells |= {HTTP1 + case: cells for case, cells in http1.cells.items()}
        results.failures |= {HTTP1 + case: failed for case, failed in http1.failures.items()}
    return results


def line(results: Results, compiled: bool) -> str:
    """``compiled`` is whether the gateway that was measured is.

    ``cpu_us_per_request`` has microseconds by peer and shape, ``ratio`` the gateway's by that of
    each other peer.
    """
    costs: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for case, contenders in results.cells.items():
        for name in contenders:
            cost = results.median(case, name, "cpu_us")
            if cost is not None:
                costs.setdefault(name, {})[case] = round(cost, DIGITS)
            share = ratio(results, case, name, "cpu_us")
            if name != GATEWAY and share is not None:
                ratios.setdefault(name, {})[case] = round(share, DIGITS)
    return json.dumps({"compiled": compiled, "cpu_us_per_request": costs, "ratio": ratios})
