"""Least connections: the endpoint with the fewest streams in flight for its weight.

Streams in flight are counted at dispatch, over all workers, so a burst spreads before any response
has come. Endpoints that are equally loaded share the requests in proportion to their weights, at
random: a fixed order would send every worker's requests to the same first endpoint whenever the
traffic is light.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
class LeastConnections:
    """The policy. Make it after the fork, or give each worker's its own ``rng``."""

    if cython.compiled:
        _endpoints: list[Endpoint] = cython.declare(list)
        _weights: list[int] = cython.declare(list)
        _draw: Callable[[], float] = cython.declare(object)
    else:
        __slots__ = ("_draw", "_endpoints", "_weights")

    def __init__(self, rng: Random | None = None) -> None:
        self._endpoints = []
        self._weights = []
        self._draw = (rng or Random()).random

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """See :class:`Policy`."""
        self._endpoints = list(endpoints)
        self._weights = [endpoint.weight for endpoint in self._endpoints]

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def pick(self, request: PickRequest, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """See :class:`Policy`. O(n)."""
        endpoints: list[Endpoint] = self._endpoints
        weights: list[int] = self._weights
        best: list[int] = []  # indices of the endpoints equally loaded
        best_load: cython.longlong = 0
        best_weight: cython.longlong = 0  # 0: none yet
        total_weight: cython.longlong = 0  # of all in best
        load: cython.longlong
        weight: cython.longlong
        excess: cython.longlong
        i: cython.Py_ssize_t
        check_tried: cython.bint = bool(tried)
        for i in range(len(endpoints)):
            endpoint = endpoints[i]
            load = endpoint.load()
            weight = weights[i]
            if load < 0 or weight <= 0 or (check_tried and endpoint in tried):
                continue
            # load / weight against best_load / best_weight, in whole numbers
            excess = load * best_weight - best_load * weight
            if excess < 0 or best_weight == 0:
                best = [i]
                best_load = load
                best_weight = weight
                total_weight = weight
            elif excess == 0:
                best.append(i)
                total_weight += weight
        if best_weight == 0:
            return None
        if len(best) == 1:
            i = best[0]
            return endpoints[i]
        left: cython.longlong = int(self._draw() * total_weight)
        for i in best:
            left -= weights[i]
            if left < 0:
                break
        return endpoints[i]
