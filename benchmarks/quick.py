"""The quick look: CPU per request of everyone who is installed, as one line of JSON."""

from __future__ import annotations

import json

from benchmarks.harness import Results
from benchmarks.load import Shape
from benchmarks.peers import GATEWAY
from benchmarks.report import ratio

SHAPES = (Shape(10, 10, 6_000), Shape(64, 1, 4_000))
ROUNDS = 3
DIGITS = 2


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
