"""Which cores the proxies get, and which the backends and the load."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """Sets of core numbers. They overlap where there are not enough cores."""

    proxy: frozenset[int]
    load: frozenset[int]

    @property
    def separate(self) -> bool:
        """Whether the load leaves the proxy's cores alone."""
        return not self.proxy & self.load


def share_cores(workers: int, available: frozenset[int] | None = None) -> Cores:
    """One core for each of ``workers`` and one for the load.

    The load has the last core, and keeps it to itself as long as the workers have another.
    ``available`` is by default what this process was started with. ValueError if it is empty.
    """
    cores = sorted(_STARTED_WITH if available is None else available)
    if not cores:
        raise ValueError("no cores")
    return Cores(frozenset(cores[:workers]), frozenset(cores[-1:]))


_STARTED_WITH = frozenset(os.sched_getaffinity(0))
"""Read at import: later on, this process pins itself to the load's core."""
