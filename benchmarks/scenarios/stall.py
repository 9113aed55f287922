"""Memory while clients ask for 64 MiB each and read none of it.

``window``: the client's flow-control window is 65,535 octets and is never renewed. ``socket``: the
window is open, but the client does not read its socket. A proxy that stops its own reading
upstream holds a window or a buffer for each; one that doesn't holds whole responses.
"""

from __future__ import annotations

from benchmarks.connections import HeldConnections
from benchmarks.errors import BenchmarkError
from benchmarks.harness import MIB_KIB, Harness, Proxy, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED
from benchmarks.process import pause
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample

READERS = 20
STEADY_READINGS = 4
READING_S = 0.15
LONGEST_S = 5.0

_WARM_UP = Load(Shape(2, 10, 400), "/100k")

FIGURES = (
    Figure("kib", "KiB/reader", 0),
    Figure("grown_mib", "MiB more"),
    Figure("peak_mib", "peak MiB"),
)


def run(harness: Harness) -> Results:
    """Each proxy started anew for each round."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    with harness.nghttpds() as ports:
        for case, windows in (("window", False), ("socket", True)):
            samples: dict[str, list[Sample]] = {}
            for number in range(harness.options.fresh_rounds):
                harness.say(f"stall, {case}, round {number + 1}")
                for peer in peers:
                    try:
                        with harness.proxy(peer, ports) as proxy:
                            sample = _measure(harness, proxy, windows)
                        samples.setdefault(peer.name, []).append(sample)
                    except BenchmarkError as error:
                        results.fail(case, peer.name, str(error))
            for name, kept in samples.items():
                results.add(case, name, kept)
    return results


def _measure(harness: Harness, proxy: Proxy, windows: bool) -> Sample:
    harness.send(proxy, _WARM_UP)
    tree = proxy.tree
    before_kib = tree.resident().total_kib
    tree.reset_peak()
    with HeldConnections(proxy.port) as held:
        held.open_stalled(READERS, "/64m", windows=windows)
        grown_kib = _steady_kib(proxy) - before_kib
        peak_kib = tree.peak().total_kib
    return {
        "kib": grown_kib / READERS,
        "grown_mib": grown_kib / MIB_KIB,
        "peak_mib": peak_kib / MIB_KIB,
    }


def _steady_kib(proxy: Proxy) -> int:
    """The resident memory once it has stopped changing, or after ``LONGEST_S``."""
    readings = [proxy.tree.resident().total_kib]
    while len(readings) * READING_S < LONGEST_S:
        pause(READING_S)
        readings.append(proxy.tree.resident().total_kib)
        last = readings[-STEADY_READINGS:]
        if len(last) == STEADY_READINGS and max(last) - min(last) <= max(last) // 200:
            break
    return readings[-1]


SCENARIO = Scenario("stall", "Stalled readers", FIGURES, run)
