"""Picks: how many a second each policy makes, and what share of a request's CPU that is.

The picks are timed in a process of their own, once with the installed build and once interpreted
(see :mod:`benchmarks.micro`). What a whole request costs is measured through the gateway of the
same mode at 10x10 with two endpoints, of which a pick costs next to nothing; the share is that of
the pick in both together.
"""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.micro import MODES, measure_mode
from benchmarks.peers import PEERS
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Summary

SHAPE = Shape(10, 10, 4_000)

FIGURES = (
    Figure("us", "us/pick", 3),
    Figure("per_s", "picks/s", 0),
    Figure("share", "% of a request's CPU", 2),
)


def run(harness: Harness) -> Results:
    """Requests first, then the picks of both modes."""
    results = Results()
    requests = Results()
    contenders = {name: PEERS[name] for name in MODES.values()}
    installed = [peer for peer in contenders.values() if peer.find() is not None]
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, installed) as proxies,
    ):
        harness.request_rounds(requests, SHAPE.label, proxies, Load(SHAPE, "/1k"))
    for mode, peer in MODES.items():
        harness.say(f"picks, {mode}")
        measured = measure_mode(mode, "picks", harness.options.rounds, harness.options.work)
        request_us = requests.median(SHAPE.label, peer, "cpu_us")
        for case, summary in measured.operations.items():
            figures = {"us": summary, "per_s": summary.mapped(lambda us: 1e6 / us)}
            if request_us:
                figures["share"] = _share(summary, request_us)
            results.cells.setdefault(case, {})[mode] = figures
        for case, reason in measured.missing.items():
            results.fail(case, mode, reason)
        results.notes += measured.notes
    return results


def _share(pick: Summary, request_us: float) -> Summary:
    return pick.mapped(lambda us: 100 * us / (us + request_us))


SCENARIO = Scenario("ring", "Picks of each policy", FIGURES, run)
