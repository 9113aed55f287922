"""When to try again what failed."""

from __future__ import annotations

import random

_RANDOM = random.Random()


class Backoff:
    """Exponential backoff with jitter, in seconds.

    The wait doubles from ``base_s`` up to ``max_s``; each is then taken at random between half and
    the whole of it, so that workers that lost the same backend do not come back together ("equal
    jitter", Brooker, Exponential Backoff and Jitter, AWS Architecture Blog, 2015).
    """

    __slots__ = ("_base_s", "_max_s", "failures")

    def __init__(self, base_s: float, max_s: float) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; how long to wait now."""
        wait = min(self._max_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return wait * (0.5 + _RANDOM.random() / 2)

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0


def jittered(value: float, share: float) -> float:
    """``value`` made longer or shorter at random by up to ``share`` (0..1) of it."""
    return value * (1.0 + share * (2.0 * _RANDOM.random() - 1.0))
