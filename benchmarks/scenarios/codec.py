"""What single operations of the codec cost in both modes: :mod:`benchmarks.micro`."""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.micro import MODES, measure_mode
from benchmarks.scenarios.base import Figure, Scenario

FIGURES = (Figure("us", "us/operation", 3),)


def run(harness: Harness) -> Results:
    """Both modes, one after the other."""
    results = Results()
    for mode in MODES:
        harness.say(f"operations, {mode}")
        measured = measure_mode(mode, "codec", harness.options.rounds, harness.options.work)
        for case, summary in measured.operations.items():
            results.cells.setdefault(case, {})[mode] = {"us": summary}
        for case, reason in measured.missing.items():
            results.fail(case, mode, reason)
        results.notes += measured.notes
    return results


SCENARIO = Scenario("codec", "Operations of the codec", FIGURES, run)
