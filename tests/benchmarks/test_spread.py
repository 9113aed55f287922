"""Medians, percentiles and spread."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.spread import Summary, latencies, percentile, summarise, summarise_samples

VALUES = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


def test_a_summary_has_median_and_extremes() -> None:
    summary = summarise([5.0, 1.0, 4.0])
    assert (summary.median, summary.low, summary.high) == (4.0, 1.0, 5.0)
    assert summary.values == (5.0, 1.0, 4.0)
    assert summary.spread == 1.0


def test_the_spread_of_nothing_is_zero() -> None:
    assert summarise([0.0, 0.0]).spread == 0.0


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError):
        summarise([])
    with pytest.raises(ValueError):
        percentile([], 0.5)


@given(VALUES)
def test_a_falling_conversion_exchanges_the_extremes(values: list[float]) -> None:
    mapped = summarise(values).mapped(lambda value: -value)
    assert mapped.low == -max(values)
    assert mapped.high == -min(values)
    assert mapped.median == -statistics.median(values)


def test_samples_are_summarised_by_figure() -> None:
    found = summarise_samples([{"a": 1.0, "b": 7.0}, {"a": 3.0}])
    assert found == {"a": Summary(2.0, 1.0, 3.0, (1.0, 3.0)), "b": Summary(7.0, 7.0, 7.0, (7.0,))}


def test_percentiles_are_by_nearest_rank() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert percentile(ordered, 0.50) == 50
    assert percentile(ordered, 0.90) == 90
    assert percentile(ordered, 0.99) == 99
    assert percentile(ordered, 0) == 1
    assert percentile(ordered, 1) == 100
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([1.0, 2.0], 0.51) == 2.0


def test_a_percentile_beyond_all_values_is_refused() -> None:
    with pytest.raises(ValueError):
        percentile([1.0], 1.1)


@given(VALUES, st.floats(0, 1))
def test_a_percentile_has_its_share_at_or_below_it(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9


def test_latencies_need_no_order() -> None:
    assert latencies([30, 10, 20]) == {"p50_us": 20, "p90_us": 30, "p99_us": 30}
