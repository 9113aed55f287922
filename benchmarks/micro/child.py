"""The child: times a group of operations and writes JSON.

Only what it needs of :mod:`gateway` is imported, and only when a group asks for it: an operation
whose module is not there is reported as missing, and the others are timed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping

from benchmarks.micro.timing import Operation, time_rounds

ROUND_S = 0.05
"""How long one operation is timed in each round."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "codec": (
        "benchmarks.micro.hpack",
        "benchmarks.micro.heads",
        "benchmarks.micro.connection",
        "benchmarks.micro.picks:few",
    ),
    "picks": ("benchmarks.micro.picks",),
}
"""Modules with a function ``operations()``, or whatever stands behind the colon."""


def main() -> None:
    """Arguments: the group, how many rounds, and by what ROUND_S is multiplied."""
    group, rounds, work = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    found: list[tuple[str, Operation]] = []
    missing = {}
    for place in GROUPS[group]:
        module, _, name = place.partition(":")
        try:
            make: Callable[[], dict[str, Operation]] = getattr(
                importlib.import_module(module), name or "operations"
            )
            found += make().items()
        except (ImportError, AttributeError, TypeError) as error:
            missing[place] = f"{type(error).__name__}: {error}"
    build = importlib.import_module("gateway._build")
    answer = {
        "build": build.describe(),
        "operations": time_rounds(found, rounds, ROUND_S * work),
        "missing": missing,
    }
    json.dump(answer, sys.stdout)
