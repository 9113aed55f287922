"""Counting over an interval; test_http2_floods.py has what the connection makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Http2
from gateway.wire.flood import COUNTER_OF, Flood, FloodGuard

KEY_OF = {
    Flood.RESETS: "max_resets",
    Flood.INDUCED_RESETS: "max_induced_resets",
    Flood.PINGS: "max_pings",
    Flood.SETTINGS: "max_settings",
    Flood.EMPTY_DATA: "max_empty_data",
    Flood.WINDOW_UPDATES: "max_window_updates",
    Flood.IGNORED: "max_ignored_frames",
}


def test_every_kind_has_a_key_and_a_counter():
    assert set(KEY_OF) == set(Flood)
    assert len(COUNTER_OF) == len(Flood) == len(set(COUNTER_OF))


@pytest.mark.parametrize("kind", Flood)
def test_the_limit_is_fine_and_one_more_is_not(kind):
    guard = FloodGuard(Http2(**{KEY_OF[kind]: 3}), 0.0)
    assert [guard.exceeded(kind, 1.0) for _ in range(4)] == [False, False, False, True]
    others = [other for other in Flood if other != kind]
    assert not any(guard.exceeded(other, 1.0) for other in others)


def test_counts_fall_to_zero_at_the_end_of_the_interval():
    guard = FloodGuard(Http2(max_pings=1, flood_interval_s=10.0), 100.0)
    assert not guard.exceeded(Flood.PINGS, 109.9)
    assert guard.exceeded(Flood.PINGS, 109.9)
    assert not guard.exceeded(Flood.PINGS, 110.0)
    assert guard.exceeded(Flood.PINGS, 119.9)
    assert not guard.exceeded(Flood.PINGS, 500.0)


@given(st.integers(1, 20), st.lists(st.floats(0, 5), max_size=100))
def test_no_interval_lets_more_than_the_limit_pass(limit, gaps):
    """Of the frames in one interval of the guard, those beyond the limit are all reported."""
    guard = FloodGuard(Http2(max_pings=limit, flood_interval_s=10.0), 0.0)
    now, begun, seen = 0.0, 0.0, 0
    for gap in gaps:
        now += gap
        if now >= begun + 10.0:
            begun, seen = now, 0
        seen += 1
        assert guard.exceeded(Flood.PINGS, now) == (seen > limit)
