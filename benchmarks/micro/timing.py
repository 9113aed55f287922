"""How one operation is timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

Operation = Callable[[int], object]
"""Does its work as often as it is told."""


def time_rounds(
    operations: Sequence[tuple[str, Operation]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Microseconds of CPU per operation, by name, one for each round; rounds go A B C A B C.

    Each operation is called with how often it is to do its work, so often that it takes about
    ``seconds``.
    """
    counts = {name: _fitting_count(act, seconds) for name, act in operations}
    found: dict[str, list[float]] = {name: [] for name, _ in operations}
    for _ in range(rounds):
        for name, act in operations:
            found[name].append(_timed(act, counts[name]) / counts[name] * 1e6)
    return found


def _fitting_count(act: Operation, seconds: float) -> int:
    count = 16
    while (took := _timed(act, count)) < seconds / 4:
        count *= 4
    return max(1, round(count * seconds / took))


def _timed(act: Operation, count: int) -> float:
    """Seconds of CPU. The collector is off, as :mod:`timeit` has it, after a full collection."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        act(count)
        return time.process_time() - start
    finally:
        gc.enable()
