"""Memory that all processes of the gateway share: counters, and streams in flight per endpoint.

The parent makes one :class:`SharedMemory` before it forks. Layout, in 64-bit words, each part
starting on a page of its own so that no two workers write to one cache line::

    directory   one word per endpoint slot: the hash of the endpoint's key, 0 when the slot is free
    row 0       of worker 0:  counters | in flight per slot | holds per slot
    row 1       of worker 1
    ...
    row N       "retired":    counters of workers that died; holds of the parent

**Who writes what.** A row belongs to one worker, which adds to it without any lock; readers sum
the rows. Aligned 64-bit loads and stores are atomic on the machines we run on, so a reader sees
each value either before or after an addition. What concerns several processes at once (the
directory, holds, the clearing of a row, a snapshot) happens under a POSIX record lock on the
memory's file, which the kernel drops when its owner dies. Each is held for microseconds.

**Slots.** All processes count the streams of an endpoint in the same slot, found by the 64-bit
hash of its key. A slot is freed when no process holds it and no stream is counted in it, so a slot
never changes hands under a worker that has not heard yet that the endpoint is gone, nor under
streams that finish on it.

**Death of a worker.** The parent calls :meth:`SharedMemory.clear_row`: what the worker had open is
gone (gauges, streams in flight, holds), what it had counted is added to the retired row, so totals
never go backwards.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Final

from gateway.errors import GatewayError
from gateway.telemetry.counters import GAUGES, NAMES

_WORD: Final = 8
_COUNTERS: Final = len(NAMES)
_MONOTONIC: Final = tuple(index for index in range(_COUNTERS) if index not in GAUGES)


class SlotsExhausted(GatewayError):
    """No endpoint slot is free: more endpoints at once than the shared memory was made for."""


class InFlight:
    """The streams in flight on one endpoint: this worker's share, and the sum over all workers.

    ``cells`` has one 64-bit integer per worker, ``index`` is the one to write. They are what
    :class:`gateway.balance.Endpoint` reads and writes without a call.
    """

    __slots__ = ("cells", "index")

    def __init__(self, cells: memoryview, index: int) -> None:
        self.cells = cells
        self.index = index

    def total(self) -> int:
        """Streams in flight on the endpoint from all workers."""
        return sum(self.cells.tolist())

    def add(self, n: int) -> None:
        """Adds ``n`` (negative at a stream's end) to this worker's share."""
        self.cells[self.index] += n

    def __repr__(self) -> str:
        return f"<InFlight {self.cells.tolist()} writes {self.index}>"


class Row:
    """What one worker writes. ``counters`` is a memoryview of format ``q`` indexed by Counter."""

    __slots__ = ("_memory", "counters", "worker")

    def __init__(self, memory: SharedMemory, worker: int, counters: memoryview) -> None:
        self._memory = memory
        self.worker = worker
        self.counters = counters

    def add(self, counter: int, n: int = 1) -> None:
        """Adds ``n`` to one counter or gauge."""
        self.counters[counter] += n

    def claim(self, key: str) -> InFlight:
        """Holds the slot of the endpoint ``key`` for this worker and gives its counter.

        Raises :class:`SlotsExhausted`. Give it back with :meth:`release`, once per claim.
        """
        slot = self._memory.claim_slot(key, self.worker)
        return self._memory.in_flight(slot, self.worker)

    def release(self, key: str) -> bool:
        """This worker picks the endpoint ``key`` no more: see :meth:`SharedMemory.release_slot`."""
        return self._memory.release_slot(key, self.worker)


class SharedMemory:
    """Counters of ``workers`` processes, streams in flight on ``endpoint_slots`` endpoints.

    Make it in the parent before the fork; children use the object they inherit. Costs 8 bytes per
    slot, and 16 per slot and worker, rounded up to pages. Raises OSError where there is no such
    memory, ValueError on sizes below 1.
    """

    def __init__(self, workers: int, endpoint_slots: int) -> None:
        if workers < 1 or endpoint_slots < 1:
            raise ValueError("workers and endpoint_slots must be at least 1")
        self.workers: Final = workers
        self.endpoint_slots: Final = endpoint_slots
        page_words = mmap.PAGESIZE // _WORD
        self._rows_start: Final = _round_up(endpoint_slots, page_words)
        self._row_words: Final = _round_up(_COUNTERS + 2 * endpoint_slots, page_words)
        size = (self._rows_start + (workers + 1) * self._row_words) * _WORD
        self._fd = _open_memory(size)
        self._map = mmap.mmap(self._fd, size)
        self._words = memoryview(self._map).cast("q")
        self._bytes = memoryview(self._map)

    def close(self) -> None:
        """Closes the file; the mapping itself goes when the last view of it is gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._words.release()
        self._bytes.release()
        with suppress(BufferError):  # rows and in-flight counters still look into it
            self._map.close()

    # Rows.

    def row(self, worker: int) -> Row:
        """The row of ``worker`` (0 to workers - 1), for that worker alone to write."""
        self._check_worker(worker)
        return Row(self, worker, self._counters(worker))

    def clear_row(self, worker: int) -> None:
        """Forgets what a dead worker had open; keeps what it had counted.

        To be called by the parent after it reaped the worker and before it forks the next one for
        the row.
        """
        self._check_worker(worker)
        start = self._row_start(worker)
        with self._locked(fcntl.LOCK_EX):
            counters = self._counters(worker)
            retired = self._counters(self.workers)
            for index in _MONOTONIC:
                retired[index] += counters[index]
            self._bytes[start * _WORD : (start + self._row_words) * _WORD] = bytes(
                self._row_words * _WORD
            )

    def snapshot(self) -> dict[str, int]:
        """The total of every counter and gauge over all workers, dead ones included, by name."""
        totals = [0] * _COUNTERS
        with self._locked(fcntl.LOCK_SH):  # not between the two halves of a clear_row
            for row in range(self.workers + 1):
                values = self._counters(row).tolist()
                totals = [total + value for total, value in zip(totals, values, strict=True)]
        return dict(zip(NAMES, totals, strict=True))

    # Endpoint slots.

    def claim_slot(self, key: str, worker: int | None = None) -> int:
        """The slot of the endpoint ``key``: the same in all processes, held until released.

        ``worker`` says on whose behalf it is held; None is the parent, whose holds outlive every
        worker. Claims add up: release as many times. Raises :class:`SlotsExhausted`.
        """
        holder = self._holder(worker)
        digest = _key_hash(key)
        with self._locked(fcntl.LOCK_EX):
            slot = self._find(digest)
            if slot < 0:
                slot = self._find(0)
            if slot < 0:
                self._sweep()
                slot = self._find(0)
            if slot < 0:
                raise SlotsExhausted(
                    f"endpoint {key}: all {self.endpoint_slots} endpoint slots are in use"
                )
            self._words[slot] = digest
            self._holds(holder)[slot] += 1
        return slot

    def release_slot(self, key: str, worker: int | None = None) -> bool:
        """Takes back one claim; true if that freed the slot.

        To be called once nothing can pick the endpoint any more. Its streams may still be in
        flight: they go on to be counted in the slot, which is freed when they are done. Raises
        KeyError if ``key`` is not held on behalf of ``worker``.
        """
        holder = self._holder(worker)
        digest = _key_hash(key)
        with self._locked(fcntl.LOCK_EX):
            slot = self._find(digest)
            holds = self._holds(holder)
            if slot < 0 or holds[slot] == 0:
                raise KeyError(key)
            holds[slot] -= 1
            if self._idle(slot):
                self._words[slot] = 0
                return True
        return False

    def in_flight(self, slot: int, worker: int) -> InFlight:
        """The counter of streams in flight in ``slot``, as ``worker`` writes it."""
        self._check_worker(worker)
        if not 0 <= slot < self.endpoint_slots:
            raise IndexError(f"endpoint slot {slot} of {self.endpoint_slots}")
        return InFlight(self._cells(slot), worker)

    def slots_in_use(self) -> int:
        """How many slots are taken, those included that only wait for their streams to end."""
        with self._locked(fcntl.LOCK_EX):
            self._sweep()
            return self.endpoint_slots - self._directory().tolist().count(0)

    # Under the lock.

    def _find(self, digest: int) -> int:
        """The slot that has ``digest`` in the directory (0: a free one), or -1."""
        try:
            return self._directory().tolist().index(digest)
        except ValueError:
            return -1

    def _sweep(self) -> None:
        """Frees slots that were released while their last streams were in flight."""
        for slot, digest in enumerate(self._directory().tolist()):
            if digest != 0 and self._idle(slot):
                self._words[slot] = 0

    def _idle(self, slot: int) -> bool:
        return not any(self._cells(slot).tolist()) and not any(
            self._holds(row)[slot] for row in range(self.workers + 1)
        )

    # Where things are.

    def _directory(self) -> memoryview:
        return self._words[: self.endpoint_slots]

    def _row_start(self, row: int) -> int:
        return self._rows_start + row * self._row_words

    def _counters(self, row: int) -> memoryview:
        start = self._row_start(row)
        return self._words[start : start + _COUNTERS]

    def _cells(self, slot: int) -> memoryview:
        """The in-flight counts of ``slot``, one word per worker, a row's length apart."""
        start = self._row_start(0) + _COUNTERS + slot
        return self._words[start : self._row_start(self.workers) : self._row_words]

    def _holds(self, row: int) -> memoryview:
        start = self._row_start(row) + _COUNTERS + self.endpoint_slots
        return self._words[start : start + self.endpoint_slots]

    def _holder(self, worker: int | None) -> int:
        """The row that notes the holds of ``worker``."""
        if worker is None:
            return self.workers
        self._check_worker(worker)
        return worker

    def _check_worker(self, worker: int) -> None:
        if not 0 <= worker < self.workers:
            raise IndexError(f"worker {worker} of {self.workers}")

    @contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        """Record locks belong to the process and do not nest: never enter it twice."""
        fcntl.lockf(self._fd, mode)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _key_hash(key: str) -> int:
    """A signed 64-bit hash that is the same in every process and never 0."""
    digest = blake2b(key.encode(), digest_size=_WORD).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _open_memory(size: int) -> int:
    """A descriptor of ``size`` zero bytes that no other program can open."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("gateway", os.MFD_CLOEXEC)
    else:  # not Linux: a file that has no name
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.truncate(fd, size)
    except OSError:
        os.close(fd)
        raise
    return fd
