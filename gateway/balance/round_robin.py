"""Smooth weighted round robin, as in nginx (``ngx_http_upstream_round_robin.c``).

At each pick every usable endpoint gains its weight in credit; the one with the most is picked and
pays the sum of what was gained. Over any run of sum-of-weights picks each endpoint gets its weight,
and its turns are spread: weights 5, 1, 1 give a a b a c a a.
"""

from __future__ import annotations

from array import array
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
class RoundRobin:
    """The policy. Make it after the fork, or give each worker's its own ``rng``.

    ``rng`` says which endpoint is first in order, which decides between equal credits: were the
    order the same in all workers, each would begin with the same endpoint.
    """

    if cython.compiled:
        _endpoints: list[Endpoint] = cython.declare(list)
        _weights: memoryview = cython.declare(cython.longlong[::1])  # type: ignore[misc]
        _credits: memoryview = cython.declare(cython.longlong[::1])  # type: ignore[misc]
        _draw: Callable[[], float] = cython.declare(object)
    else:
        __slots__ = ("_credits", "_draw", "_endpoints", "_weights")

    def __init__(self, rng: Random | None = None) -> None:
        self._endpoints = []
        self._weights = memoryview(array("q"))
        self._credits = memoryview(array("q"))
        self._draw = (rng or Random()).random

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """See :class:`Policy`. Turns go on where they were unless a weight has changed."""
        keys = [endpoint.key for endpoint in self._endpoints]
        weight_of = dict(zip(keys, self._weights, strict=True))
        credit_of = dict(zip(keys, self._credits, strict=True))
        if any(e.weight != weight_of.get(e.key, e.weight) for e in endpoints):
            credit_of = {}  # credit gained at another weight could outlast many turns
        first = int(self._draw() * len(endpoints))
        self._endpoints = [*endpoints[first:], *endpoints[:first]]
        self._weights = memoryview(array("q", [e.weight for e in self._endpoints]))
        self._credits = memoryview(array("q", [credit_of.get(e.key, 0) for e in self._endpoints]))

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def pick(self, request: PickRequest, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """See :class:`Policy`. O(n)."""
        endpoints: list[Endpoint] = self._endpoints
        best: cython.Py_ssize_t = -1
        best_credit: cython.longlong = 0
        credit: cython.longlong
        total: cython.longlong = 0
        i: cython.Py_ssize_t
        check_tried: cython.bint = bool(tried)
        for i in range(len(endpoints)):
            endpoint = endpoints[i]
            if not endpoint.usable or (check_tried and endpoint in tried):
                continue
            credit = self._credits[i] + self._weights[i]
            self._credits[i] = credit
            total += self._weights[i]
            if best < 0 or credit > best_credit:
                best = i
                best_credit = credit
        if best < 0:
            return None
        self._credits[best] -= total
        return endpoints[best]
