"""Medians, percentiles and spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Sample = Mapping[str, float]
"""The figures of one round, by name."""


@dataclass(frozen=True)
class Summary:
    """One figure over all rounds."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]

    @property
    def spread(self) -> float:
        """(high - low) / median: 0.1 is ten per cent. 0 when the median is 0."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def mapped(self, convert: Callable[[float], float]) -> Summary:
        """The same in another unit; ``convert`` is monotonic."""
        return summarise(map(convert, self.values))


def summarise(values: Iterable[float]) -> Summary:
    """The median of ``values`` with its spread. ValueError without values."""
    kept = tuple(values)
    if not kept:
        raise ValueError("no values")
    return Summary(median(kept), min(kept), max(kept), kept)


def summarise_samples(samples: Sequence[Sample]) -> dict[str, Summary]:
    """Each figure that any of ``samples`` has; a figure absent from some is left out of those."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: summarise(s[name] for s in samples if name in s) for name in names}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of ascending ``ordered``; ``share`` is 0 to 1.

    It is a value that occurred, never one between two. ValueError without values.
    """
    if not ordered:
        raise ValueError("no values")
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not within 0 to 1")
    rank = -int(-share * len(ordered) // 1)  # rounded up
    return ordered[max(rank, 1) - 1]


def latencies(values: Iterable[float]) -> dict[str, float]:
    """p50, p90 and p99 of ``values``, in their unit, as ``p50_us`` and so on."""
    ordered = sorted(values)
    return {f"p{n}_us": percentile(ordered, n / 100) for n in (50, 90, 99)}
