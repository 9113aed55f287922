"""A worker's place: who is in it, what its pipe said, and when its next process may start."""

from __future__ import annotations

import os
import signal

READY = b"1"
"""What a worker writes to its pipe when it accepts connections."""

FAILURE = b"!"
"""What comes before the one line that names why a worker failed."""

MAX_REPORT = 4096
"""Bytes of a failure's line. At most PIPE_BUF, so that a write of it is whole (pipe(7))."""


class Backoff:
    """Waits that double while deaths follow each other soon.

    A process that lived for at least the longest wait starts the row again.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._next_s = self._first_s

    def after_death(self, lived_s: float) -> float:
        """Seconds to wait before the next process; ``lived_s`` counts from when it was ready."""
        if lived_s >= self._longest_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, self._longest_s)
        return wait_s


class Slot:
    """One place. ``pid`` is 0 while it is empty; times are of the monotonic clock.

    ``ready_at`` is when its process began to accept, ``restart_at`` when an empty one is filled
    again; both are None otherwise. ``pipe`` is the descriptor its process reports on, -1 without.
    """

    def __init__(self, index: int, backoff: Backoff) -> None:
        self.index = index
        self.backoff = backoff
        self.pid = 0
        self.pipe = -1
        self.ready_at: float | None = None
        self.restart_at: float | None = None
        self._report = b""

    def fill(self, pid: int, pipe: int) -> None:
        """A process was started in this slot; ``pipe`` is non-blocking and belongs to the slot."""
        self.pid = pid
        self.pipe = pipe
        self.ready_at = None
        self.restart_at = None
        self._report = b""

    def read_report(self, now: float) -> bool:
        """Read what the pipe holds. False at its end, when nobody can write to it any more."""
        while True:
            try:
                data = os.read(self.pipe, MAX_REPORT)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._report += data[: 2 * MAX_REPORT - len(self._report)]
            if self.ready_at is None and self._report.startswith(READY):
                self.ready_at = now

    @property
    def failure(self) -> str:
        """The line that named why the process failed; empty when it said nothing."""
        return self._report.partition(FAILURE)[2].decode(errors="replace").strip()

    def close_pipe(self) -> None:
        """Close the pipe. Idempotent."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def reap(self) -> int | None:
        """The exit code of a process that died, the negative number of a signal; None if it lives.

        The slot still remembers what the process was until :meth:`empty`.
        """
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return 1  # somebody else waited for it: dead, and nobody knows how
        return os.waitstatus_to_exitcode(status) if pid else None

    def empty(self) -> None:
        """The process is gone."""
        self.close_pipe()
        self.pid = 0
        self.ready_at = None

    def __repr__(self) -> str:
        state = "ready" if self.ready_at is not None else "starting" if self.pid else "empty"
        return f"<Slot {self.index} {state} pid={self.pid}>"


def describe_end(code: int) -> str:
    """How a process ended, in words: ``exited with code 3``, ``killed by SIGSEGV``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}"
