"""Which cores the proxies get, and which the load."""

from __future__ import annotations

import pytest

from benchmarks.cores import share_cores


@pytest.mark.parametrize(
    ("workers", "available", "proxy", "load", "separate"),
    [
        (1, {0, 1}, {0}, {1}, True),
        (2, {0, 1}, {0, 1}, {1}, False),
        (2, {2, 5, 9}, {2, 5}, {9}, True),
        (1, {3}, {3}, {3}, False),
        (1, {0, 1, 2, 3}, {0}, {3}, True),
    ],
)
def test_cores_are_shared(
    workers: int, available: set[int], proxy: set[int], load: set[int], separate: bool
) -> None:
    cores = share_cores(workers, frozenset(available))
    assert (set(cores.proxy), set(cores.load)) == (proxy, load)
    assert cores.separate == separate


def test_no_cores_are_refused() -> None:
    with pytest.raises(ValueError):
        share_cores(1, frozenset())
