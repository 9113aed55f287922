"""All sockets of a worker, served from one place.

A Trio task per connection costs a task switch per message; one task that waits on an epoll of its
own serves every socket of a turn for a third of that (measured, see docs/architecture.md). So the
reactor is a plain synchronous object: :meth:`Reactor.turn` asks the epoll what is ready, lets each
target work, writes out what gathered, once per connection, and looks after deadlines. The loop
around it, which is Trio's side, is :mod:`gateway.net.loop`.

**Deadlines cost nothing per request.** There is no timer object. Everything that has a deadline can
say the earliest one it knows of, and whoever sets one lowers ``next_at`` if it comes sooner
(:meth:`Reactor.note`, two comparisons). When ``next_at`` is reached, every target is asked what is
overdue and the minimum is found anew. A deadline that was met in time just leaves a sweep that
finds nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.errors import Kind
from gateway.telemetry import FAILURES, Counter, Row
from gateway.wire.codec import HeldOctets

READABLE: Final = EPOLLIN | EPOLLHUP | EPOLLERR
WRITABLE: Final = EPOLLOUT
PEER_CLOSED: Final = EPOLLRDHUP
NEVER: Final = float("inf")

MAX_EVENTS: Final = 256
"""Sockets served in one turn; the rest have theirs in the next."""

MAX_TRACEBACKS: Final = 5

SWEEP_INTERVAL_S: Final = 0.005
"""Deadlines are looked at no more often than this: what they are precise to."""


class Target:
    """A socket's owner, to be derived from."""

    def ready(self, events: cython.int, now: cython.double) -> None:
        """Serve the events (of epoll) at time ``now``."""

    def flush(self, now: cython.double) -> None:
        """Write what has gathered; called for who is on the flush list."""

    def check(self, now: cython.double) -> cython.double:
        """Act on what is overdue; the next deadline, or infinity."""
        return NEVER

    def fail(self, detail: str) -> None:
        """A bug of ours struck while it was served: give up what is affected."""


class _Wakeup(Target):
    """A descriptor that becomes ready when it is told to."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        os.eventfd_write(self.fd, 1)

    def ready(self, events: cython.int, now: cython.double) -> None:
        os.eventfd_read(self.fd)

    def close(self) -> None:
        os.close(self.fd)


class Reactor:
    """One epoll and its targets. All times are seconds of :func:`time.monotonic`.

    ``flush_list`` holds the transports that have something to write this turn.
    """

    def __init__(self, budget: HeldOctets, row: Row) -> None:
        self.flush_list: list[Target] = []
        self.targets: dict[int, Target] = {}
        self.budget = budget
        self.counters = row.counters
        self.now = monotonic()
        self.next_at = NEVER
        self.turns = 0
        self._epoll = epoll()
        self._poll = self._epoll.poll
        self._wakeup = _Wakeup()
        self.register(self._wakeup.fd, self._wakeup, READABLE)
        self._checks: list[Callable[[float], float]] = []
        self._swept_at = 0.0
        self._bugs = 0

    def fileno(self) -> int:
        """The epoll's descriptor: readable when any target is ready."""
        descriptor: int = self._epoll.fileno()
        return descriptor

    def close(self) -> None:
        """Close the epoll. Targets close their own sockets."""
        self._wakeup.close()
        self._epoll.close()

    def wake(self) -> None:
        """Let a turn come soon. For whoever changes something outside of one: a Trio task."""
        self._wakeup.wake()

    def register(self, fd: int, target: Target, events: int) -> None:
        """Serve ``fd`` from the next turn on."""
        self._epoll.register(fd, events)
        self.targets[fd] = target

    def modify(self, fd: int, events: int) -> None:
        """Change what is waited for."""
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Forget ``fd``, before it is closed."""
        if self.targets.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def add_check(self, check: Callable[[float], float]) -> None:
        """Let something without a socket have deadlines, too; it is called as a target's is."""
        self._checks.append(check)

    def remove_check(self, check: Callable[[float], float]) -> None:
        """Undo :meth:`add_check`."""
        self._checks.remove(check)

    def note(self, at: cython.double) -> None:
        """There is a deadline at ``at``."""
        if at < self.next_at:
            self.next_at = at

    def count(self, counter: int, number: int = 1) -> None:
        """Add to a counter of this worker (a value of :class:`gateway.telemetry.Counter`)."""
        self.counters[counter] += number

    def count_name(self, name: str) -> None:
        """Count an event by its name in a snapshot; for what is rare."""
        self.counters[Counter[name.upper()]] += 1

    def turn(self, timeout: cython.double) -> cython.Py_ssize_t:
        """Wait up to ``timeout`` seconds and serve what is ready; how many targets that were."""
        fd: int
        events: int
        target: Target | None
        batch: list[tuple[int, int]] = self._poll(timeout, MAX_EVENTS)
        now: cython.double = monotonic()
        self.now = now
        if batch:
            self.turns += 1
            targets = self.targets
            for fd, events in batch:
                target = targets.get(fd)
                if target is not None:
                    try:
                        target.ready(events, now)
                    except Exception as error:  # noqa: BLE001 - one bug, one connection
                        self.failed(target, error)
        if self.flush_list:
            self.flush()
        if now >= self.next_at and now - self._swept_at >= SWEEP_INTERVAL_S:
            self.sweep(now)
        return len(batch)

    def failed(self, target: Target, error: Exception) -> None:
        """A bug of ours hit one connection: it is closed, the others go on.

        The first few are printed with their traceback; ``failure_internal`` counts them all.
        """
        self._report(target, error)
        try:
            target.fail(f"internal error: {error!r}")
        except Exception as again:  # noqa: BLE001 - it may meet the same bug
            self._report(target, again)

    def _report(self, source: object, error: Exception) -> None:
        self.counters[FAILURES[Kind.INTERNAL]] += 1
        self._bugs += 1
        if self._bugs <= MAX_TRACEBACKS:
            print(f"gateway: internal error at {source!r}", file=sys.stderr)  # noqa: T201
            traceback.print_exception(error)

    def flush(self) -> None:
        """Write out what gathered. Writing may let more be written, so until nothing is left."""
        now: cython.double = self.now
        target: Target
        waiting = self.flush_list
        i: cython.Py_ssize_t = 0
        # The list grows while it is walked: who has something new to write is appended.
        while i < len(waiting):
            target = waiting[i]
            try:
                target.flush(now)
            except Exception as error:  # noqa: BLE001 - one bug, one connection
                self.failed(target, error)
            i += 1
        waiting.clear()

    def sweep(self, now: cython.double) -> None:
        """Ask everybody for what is overdue."""
        self._swept_at = now
        self.next_at = NEVER
        earliest: cython.double = NEVER
        at: cython.double
        target: Target
        for target in list(self.targets.values()):
            try:
                at = target.check(now)
            except Exception as error:  # noqa: BLE001 - one bug, one connection
                self.failed(target, error)
                continue
            if at < earliest:
                earliest = at
        for check in list(self._checks):
            try:
                at = check(now)
            except Exception as error:  # noqa: BLE001 - one bug, one check
                self._report(check, error)
                continue
            if at < earliest:
                earliest = at
        if earliest < self.next_at:
            self.next_at = earliest
        if self.flush_list:
            self.flush()
