"""Which early data was seen before, for all workers (RFC 8446 section 8.2).

OpenSSL takes early data only if the age that the client gives its ticket is within ten seconds of
the true one, so a flight that is sent again is dangerous for little longer than that: what was
seen is remembered for one to two periods of :data:`PERIOD_S`. Older ones OpenSSL refuses.

Two tables of digests in memory that all workers share: the present period's and the last one's.
When a table is full, early data is refused, which costs its sender a round trip.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from hashlib import blake2b
from typing import Final

PERIOD_S: Final = 15.0
"""Seconds; above the ten that OpenSSL allows, with its rounding of ages to seconds."""

_WORD: Final = 8
_MOST_PROBES: Final = 32


class ReplayWindow:
    """Make it before the fork. ``capacity`` is how many flights a period may have, at least 64.

    Costs 16 bytes for each. ``secret`` keeps others from choosing what collides.
    """

    def __init__(self, capacity: int = 65_536) -> None:
        self._slots = max(capacity, 64)
        self._secret = os.urandom(16)
        size = _WORD * (1 + 2 * self._slots)
        self._fd = os.memfd_create("gateway-replay", os.MFD_CLOEXEC)
        os.truncate(self._fd, size)
        self._memory = mmap.mmap(self._fd, size)
        self._words = memoryview(self._memory).cast("Q")

    def first_time(self, random: bytes, now: float) -> bool:
        """Whether a ClientHello with this ``random`` was not seen before; it is remembered.

        ``now`` is in seconds of a clock that all workers share.
        """
        digest = int.from_bytes(blake2b(random, digest_size=8, key=self._secret).digest()) or 1
        period = int(now / PERIOD_S) + 1
        # A record lock belongs to a process, and the kernel drops it with its owner.
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            self._turn_to(period)
            present, last = period % 2, (period + 1) % 2
            if self._find(last, digest)[1]:
                return False
            slot, found = self._find(present, digest)
            if found or slot < 0:
                return False
            self._words[slot] = digest
            return True
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        self._memory.close()
        os.close(self._fd)

    def _turn_to(self, period: int) -> None:
        before = self._words[0]
        if before == period:
            return
        for table in (period, period + 1) if period - before > 1 else (period,):
            start = self._start(table % 2)
            self._memory[start * _WORD : (start + self._slots) * _WORD] = bytes(self._slots * _WORD)
        self._words[0] = period

    def _start(self, table: int) -> int:
        return 1 + table * self._slots

    def _find(self, table: int, digest: int) -> tuple[int, bool]:
        """The word that holds ``digest`` and True, or a free one (-1: none near) and False."""
        start = self._start(table)
        at = digest % self._slots
        for _ in range(_MOST_PROBES):
            word = self._words[start + at]
            if word == digest:
                return start + at, True
            if word == 0:
                return start + at, False
            at = (at + 1) % self._slots
        return -1, False
