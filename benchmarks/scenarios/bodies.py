"""Bodies each way: what a larger message costs, and how fast it gets through."""

from __future__ import annotations

from benchmarks.backends import SIZES
from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED
from benchmarks.scenarios.base import CPU, Figure, Scenario

SHAPES = (("10k", Shape(4, 4, 4_000)), ("100k", Shape(4, 4, 1_000)), ("1m", Shape(4, 4, 160)))
"""File and shape: 40 to 160 MiB in each round."""

FIGURES = (
    Figure("mib_s", "MiB/s", 0),
    CPU,
    Figure("rps", "requests/s", 0),
    Figure("p50_us", "p50 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("peak_mib", "peak MiB"),
    Figure("switches", "switches/request", 2),
)


def run(harness: Harness) -> Results:
    """Each size down (GET of a file), then up (POST of it, answered with 1 KiB)."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, peers) as proxies,
    ):
        for name, shape in SHAPES:
            down = Load(shape, f"/{name}")
            up = Load(shape, "/1k", body=harness.files / name)
            for case, wanted in ((f"{name} down", down), (f"{name} up", up)):
                harness.request_rounds(results, case, proxies, wanted)
                _add_throughput(results, case, SIZES[name])
    return results


def _add_throughput(results: Results, case: str, size: int) -> None:
    for figures in results.cells.get(case, {}).values():
        figures["mib_s"] = figures["rps"].mapped(lambda rps: rps * size / 2**20)


SCENARIO = Scenario("bodies", "Bodies of 10 KiB to 1 MiB", FIGURES, run)
