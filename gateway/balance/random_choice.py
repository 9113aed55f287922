"""Weighted random choice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

from gateway.balance.endpoint import Endpoint
from gateway.balance.request import PickRequest

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython


@cython.final
@cython.cclass
class RandomChoice:
    """The policy. Make it after the fork, or give each worker's its own ``rng``."""

    if cython.compiled:
        _endpoints: list[Endpoint] = cython.declare(list)
        _bounds: list[int] = cython.declare(list)
        _total: int = cython.declare(cython.longlong)
        _draw: Callable[[], float] = cython.declare(object)
    else:
        __slots__ = ("_bounds", "_draw", "_endpoints", "_total")

    def __init__(self, rng: Random | None = None) -> None:
        self._endpoints = []
        self._bounds = []
        self._total = 0
        self._draw = (rng or Random()).random

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """See :class:`Policy`."""
        self._endpoints = [endpoint for endpoint in endpoints if endpoint.weight > 0]
        self._bounds = list(accumulate(endpoint.weight for endpoint in self._endpoints))
        self._total = self._bounds[-1] if self._bounds else 0

    def pick(self, request: PickRequest, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """See :class:`Policy`. O(log n) while most endpoints can be picked, else O(n)."""
        if self._total == 0:
            return None
        # To draw again when the choice can't be picked leaves the others their exact shares.
        for _ in range(3):
            endpoint = self._endpoints[bisect_right(self._bounds, int(self._draw() * self._total))]
            if endpoint.usable and (not tried or endpoint not in tried):
                return endpoint
        return self._pick_of_the_usable(tried)

    def _pick_of_the_usable(self, tried: Collection[Endpoint]) -> Endpoint | None:
        usable = [e for e in self._endpoints if e.usable and e not in tried]
        if not usable:
            return None
        left = int(self._draw() * sum(e.weight for e in usable))
        for endpoint in usable:
            left -= endpoint.weight
            if left < 0:
                break
        return endpoint
