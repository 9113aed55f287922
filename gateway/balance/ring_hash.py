"""Consistent hashing: requests with the same key go to the same endpoint.

Each endpoint has many points ("virtual nodes") on a ring of 64-bit hashes; a key belongs to the
first point after its own hash. The ring is built by uhashring, which computes a node's points from
its name alone, so:

- the ring depends on the set of endpoints, not on their order nor on what the set was before: all
  workers, all restarts and all gateways with one configuration agree;
- an endpoint that comes takes about 1/N of the keys, evenly from the others, and all other keys
  stay; one that leaves gives its keys back the same way. A weight that grows only adds points.

**Points.** An endpoint of weight 100 has ``virtual_nodes`` points, one of weight 200 twice as
many, at least one. Where no weight of the set is above 10, weights are taken to count from 1 and
weight 1 has ``virtual_nodes`` points. The scale is fixed rather than relative to the other
endpoints, for else every change of one weight would move keys between all the others. With 100
points the shares of equal endpoints differ by about 10 % (standard deviation 1/sqrt(points)). The
points of a ring are limited to :data:`MAX_POINTS` (about 110 bytes each): above, all are scaled
down by the same power of two.

**Endpoints that can't be used** keep their points, so that keys return when the endpoint does. A
pick walks on to the next point whose endpoint can be used. As the points after those of one
endpoint belong to all the others, its keys spread over all of them by weight.

uhashring's own look-up hashes through a few Python calls (1.2 us for MD5); here the same two steps
are done on its sorted points: hash, bisect.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from uhashring import HashRing

from gateway.balance.endpoint import Endpoint
from gateway.balance.hash_key import HashKey
from gateway.balance.policy import Policy
from gateway.balance.request import PickRequest

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

MAX_POINTS = 262_144
"""Points of one ring, of all its endpoints together."""

_REBUILD_ABOVE = 4
"""With more changes than these at once, building anew beats changing: each change sorts."""


def ring_position(key: str | bytes) -> bytes:
    """Where ``key`` is on the ring: 8 bytes that compare as they are."""
    if isinstance(key, str):
        key = key.encode()
    return blake2b(key, digest_size=8).digest()


def points_by_key(weights: dict[str, int], virtual_nodes: int) -> dict[str, int]:
    """How many points each endpoint has. ``weights`` are by endpoint key; weight 0 has none."""
    weights = {key: weight for key, weight in weights.items() if weight > 0}
    unit = 1 if max(weights.values(), default=0) <= 10 else 100
    points = {key: max(1, round(weight * virtual_nodes / unit)) for key, weight in weights.items()}
    while (total := sum(points.values())) > max(MAX_POINTS, len(points)):
        halvings = ((total - 1) // MAX_POINTS).bit_length()
        points = {key: max(1, count >> halvings) for key, count in points.items()}
    return points


@cython.final
@cython.cclass
class RingHash:
    """The policy. ``fallback`` picks for requests without a key; None picks nothing for them.

    With ``fallback_key`` given, requests without a key are first tried for that one.
    """

    if cython.compiled:
        _key: HashKey = cython.declare(object)
        _fallback_key: HashKey | None = cython.declare(object)
        _fallback: Policy | None = cython.declare(object)
        _virtual_nodes: int = cython.declare(object)
        _ring: HashRing = cython.declare(object)
        _points: dict[str, int] = cython.declare(dict)
        _positions: list[bytes] = cython.declare(list)
        _owners: list[Endpoint] = cython.declare(list)
        _endpoints: list[Endpoint] = cython.declare(list)
    else:
        __slots__ = (
            "_endpoints",
            "_fallback",
            "_fallback_key",
            "_key",
            "_owners",
            "_points",
            "_positions",
            "_ring",
            "_virtual_nodes",
        )

    def __init__(
        self,
        key: HashKey,
        virtual_nodes: int = 100,
        fallback: Policy | None = None,
        fallback_key: HashKey | None = None,
    ) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes {virtual_nodes} is below 1")
        self._key = key
        self._fallback_key = fallback_key
        self._fallback = fallback
        self._virtual_nodes = virtual_nodes
        self._ring = HashRing([], hash_fn=ring_position)
        self._points = {}
        self._positions = []
        self._owners = []
        self._endpoints = []

    @property
    def ring(self) -> HashRing:
        """The ring as uhashring built it, by endpoint key. Not to be changed."""
        return self._ring

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """See :class:`Policy`. About 2 us per point of each endpoint that came or changed."""
        by_key: dict[str, Endpoint] = {endpoint.key: endpoint for endpoint in endpoints}
        points = points_by_key(
            {key: endpoint.weight for key, endpoint in by_key.items()}, self._virtual_nodes
        )
        if points != self._points:
            self._change_ring(points)
            self._positions = sorted(self._ring.ring)
        owner_of = self._ring.ring
        self._owners = [by_key[owner_of[position]] for position in self._positions]
        self._endpoints = list(by_key.values())
        if self._fallback is not None:
            self._fallback.update(endpoints)

    def pick(self, request: PickRequest, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """See :class:`Policy`. Endpoints in ``tried`` are walked past like unavailable ones."""
        key: bytes | None = self._key.read(request)
        if key is None:
            if self._fallback_key is not None:
                key = self._fallback_key.read(request)
            if key is None:
                return None if self._fallback is None else self._fallback.pick(request, tried)
        owners: list[Endpoint] = self._owners
        size: cython.Py_ssize_t = len(owners)
        if size == 0:
            return None
        position: cython.Py_ssize_t = bisect_right(
            self._positions, blake2b(key, digest_size=8).digest()
        )
        if position == size:
            position = 0
        endpoint = owners[position]
        if endpoint.usable and (not tried or endpoint not in tried):
            return endpoint
        return self._walk(position, tried)

    @cython.cfunc
    def _walk(self, position: cython.Py_ssize_t, tried: Collection[Endpoint]) -> Endpoint | None:
        """The owner of the next point after ``position`` that can be picked."""
        owners: list[Endpoint] = self._owners
        size: cython.Py_ssize_t = len(owners)
        # With few endpoints left the walk may be long, with none left it would be the whole ring:
        # before going on for longer than there are endpoints, see which they are.
        patience: cython.Py_ssize_t = len(self._endpoints)
        step: cython.Py_ssize_t
        last = owners[position]
        for step in range(1, size):
            position += 1
            if position == size:
                position = 0
            endpoint = owners[position]
            if endpoint is not last:
                if endpoint.usable and endpoint not in tried:
                    return endpoint
                last = endpoint
            if step == patience:
                left = [e for e in self._endpoints if e.usable and e not in tried]
                if not left:
                    return None
                if len(left) == 1:
                    return left[0]
        return None

    def _change_ring(self, points: dict[str, int]) -> None:
        """Makes the ring one of ``points``; the outcome does not depend on what it was."""
        old = self._points
        gone = [key for key in old if key not in points]
        changed = [key for key, count in points.items() if old.get(key) != count]
        if len(gone) + len(changed) > _REBUILD_ABOVE:
            nodes = {key: {"vnodes": count} for key, count in points.items()}
            self._ring = HashRing(nodes, hash_fn=ring_position)
        else:
            for key in gone:
                del self._ring[key]
            for key in changed:
                self._ring[key] = {"vnodes": points[key]}
        self._points = points
