"""What a scenario is, and the figures that it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness import Harness, Results


@dataclass(frozen=True)
class Figure:
    """A column: ``key`` names it in samples, ``title`` says it with its unit."""

    key: str
    title: str
    digits: int = 1


@dataclass(frozen=True)
class Target:
    """In ``case`` the gateway's first figure is to be at most ``most`` times that of ``peer``."""

    case: str
    peer: str
    most: float


@dataclass(frozen=True)
class Scenario:
    """``figures[0]`` is what ratios, targets and the chart are made of."""

    name: str
    title: str
    figures: Sequence[Figure]
    run: Callable[[Harness], Results]
    targets: Sequence[Target] = ()


CPU = Figure("cpu_us", "CPU us/request", 2)
REQUESTS = (
    CPU,
    Figure("rps", "requests/s", 0),
    Figure("p50_us", "p50 us", 0),
    Figure("p90_us", "p90 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("peak_mib", "peak MiB"),
    Figure("fds", "fds", 0),
    Figure("switches", "switches/request", 3),
)
"""Of the scenarios whose load is h2load; see the package's docstring."""
