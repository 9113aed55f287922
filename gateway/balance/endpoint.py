"""An endpoint as the policies see it: its weight, its state and its streams in flight."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

MAX_WEIGHT = 1_000_000
"""The largest weight: products of weights and stream counts stay within 64 bits."""


class Counter(Protocol):
    """Streams in flight on one endpoint, counted by several workers.

    ``cells`` is a memoryview of format ``q``, one integer per worker; this worker writes to
    ``cells[index]`` and to no other. It may be strided.
    """

    @property
    def cells(self) -> memoryview: ...

    @property
    def index(self) -> int: ...


@cython.final
@cython.cclass
class Endpoint:
    """One backend of a cluster.

    ``key`` names it for good: the ring and the shared counts know it by that. ``weight`` is 0 to
    :data:`MAX_WEIGHT`; 0 takes it out of every pick. A changed weight counts from the next
    :meth:`Policy.update`. ``available`` is what health checks and failed dials make of it,
    ``draining`` is set when it is to finish what it has and get nothing new.

    A pick does not change the endpoint. Who dispatches a request to it calls :meth:`acquire`
    first and :meth:`release` once when the stream ends, whatever became of it and whether or not
    the endpoint is still in its policy's set.
    """

    if cython.compiled:
        key: str = cython.declare(str, visibility="readonly")
        address: object = cython.declare(object, visibility="readonly")
        weight: int = cython.declare(cython.longlong, visibility="public")
        available: bool = cython.declare(cython.bint, visibility="public")
        draining: bool = cython.declare(cython.bint, visibility="public")
        held: int = cython.declare(cython.longlong, visibility="readonly")
        _cells: memoryview = cython.declare(cython.longlong[:])  # type: ignore[misc]
        _index: int = cython.declare(cython.Py_ssize_t)
    else:
        __slots__ = (
            "_cells",
            "_index",
            "address",
            "available",
            "draining",
            "held",
            "key",
            "weight",
        )

    def __init__(
        self, key: str, address: object, weight: int = 100, counter: Counter | None = None
    ) -> None:
        """``counter`` is where the streams are counted; None counts them for this object alone."""
        if not 0 <= weight <= MAX_WEIGHT:
            raise ValueError(f"weight {weight} of {key} is not within 0 to {MAX_WEIGHT}")
        self.key = key
        self.address = address
        self.weight = weight
        self.available = True
        self.draining = False
        self.held = 0
        if counter is None:
            self._cells = memoryview(array("q", (0,)))
            self._index = 0
        else:
            self._cells = counter.cells
            self._index = counter.index
            if not 0 <= counter.index < len(counter.cells):
                raise IndexError(f"cell {counter.index} of {len(counter.cells)}")

    @property
    def in_flight(self) -> int:
        """Streams in flight from all workers."""
        return self._total()

    @property
    def usable(self) -> bool:
        """Whether a pick may choose it."""
        return self.available and not self.draining and self.weight > 0

    def load(self) -> cython.longlong:
        """Streams in flight from all workers; -1 when no pick may choose the endpoint."""
        if not self.available or self.draining or self.weight <= 0:
            return -1
        total: cython.longlong = self._total()
        # Only a bug can make the sum negative; it must not make the endpoint look unusable.
        return total if total > 0 else 0

    def acquire(self) -> None:
        """Counts one more stream in flight."""
        self.held += 1
        self._cells[self._index] += 1

    def release(self) -> None:
        """Counts one stream less. RuntimeError if this object has none in flight: a bug."""
        if self.held <= 0:
            raise RuntimeError(f"endpoint {self.key} released more often than acquired")
        self.held -= 1
        self._cells[self._index] -= 1

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    @cython.initializedcheck(False)
    def _total(self) -> cython.longlong:
        if not cython.compiled:
            return sum(self._cells.tolist())
        total: cython.longlong = 0
        i: cython.Py_ssize_t
        for i in range(len(self._cells)):
            total += self._cells[i]
        return total

    def __repr__(self) -> str:
        state = "draining" if self.draining else "up" if self.available else "down"
        return f"<Endpoint {self.key} {state} weight={self.weight} in_flight={self.in_flight}>"
