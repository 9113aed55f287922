"""The bandwidth-delay estimator: when it samples and what it makes of a sample."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.flow import BandwidthDelay


def sampled(flow: BandwidthDelay, octets: int, rtt_s: float = 0.05, now: float = 10.0) -> int:
    assert flow.start(now)
    flow.add(octets)
    return flow.finish(now + rtt_s)


def test_a_window_filled_within_a_round_trip_doubles():
    flow = BandwidthDelay(1000, 100_000)
    assert sampled(flow, 1000) == 2000
    assert flow.window == 2000


def test_a_window_hardly_used_stays():
    flow = BandwidthDelay(1000, 100_000)
    assert sampled(flow, 100) == 0
    assert flow.window == 1000


def test_a_sample_above_the_window_gives_twice_the_sample():
    flow = BandwidthDelay(1000, 100_000)
    assert sampled(flow, 3000) == 6000


def test_it_never_passes_the_limit_and_then_samples_no_more():
    flow = BandwidthDelay(1000, 1500)
    assert sampled(flow, 1000) == 1500
    assert not flow.start(20.0)


def test_one_sample_at_a_time():
    flow = BandwidthDelay(1000, 100_000)
    assert flow.start(1.0)
    flow.add(900)
    assert not flow.start(2.0)
    assert flow.finish(3.0) == 2000


def test_an_acknowledgement_that_nobody_asked_for_changes_nothing():
    flow = BandwidthDelay(1000, 100_000)
    flow.add(10**6)
    assert flow.finish(1.0) == 0
    assert (flow.window, flow.rtt_s) == (1000, 0.0)


def test_a_new_sample_begins_at_zero():
    flow = BandwidthDelay(1000, 100_000)
    sampled(flow, 300)
    assert sampled(flow, 300) == 0


def test_round_trip_is_smoothed():
    flow = BandwidthDelay(1000, 100_000)
    sampled(flow, 0, 0.08)
    assert abs(flow.rtt_s - 0.08) < 1e-9
    sampled(flow, 0, 0.16)
    assert abs(flow.rtt_s - 0.09) < 1e-9


@given(
    st.integers(1, 2**31 - 1),
    st.integers(1, 2**31 - 1),
    st.lists(st.integers(0, 2**32), max_size=20),
)
def test_windows_only_grow_and_keep_the_limit(window, limit, samples):
    flow = BandwidthDelay(min(window, limit), limit)
    for octets in samples:
        before = flow.window
        if not flow.start(0.0):
            assert before == limit
            break
        flow.add(octets)
        grown = flow.finish(1.0)
        assert grown in (0, flow.window)
        assert before <= flow.window <= limit
