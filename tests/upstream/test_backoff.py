"""How long to wait before what failed is tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.backoff import Backoff, jittered


def test_it_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(1.0, 10.0)
    for whole in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert whole / 2 <= backoff.failed() <= whole
    assert backoff.failures == 6


def test_a_success_begins_anew() -> None:
    backoff = Backoff(1.0, 1000.0)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failures == 0
    assert backoff.failed() <= 1.0


def test_waits_are_spread() -> None:
    """Those that lost the same backend at once do not come back at once."""
    waits = [Backoff(1.0, 10.0).failed() for _ in range(200)]
    assert len({round(wait, 6) for wait in waits}) > 100
    assert min(waits) < 0.6
    assert max(waits) > 0.9


def test_it_never_overflows() -> None:
    backoff = Backoff(0.1, 10.0)
    for _ in range(5000):
        assert backoff.failed() <= 10.0


@given(st.floats(0.001, 1e6), st.floats(0.0, 1.0))
def test_jitter_stays_within_its_share(value: float, share: float) -> None:
    assert value * (1 - share) * (1 - 1e-9) <= jittered(value, share)
    assert jittered(value, share) <= value * (1 + share) * (1 + 1e-9)


def test_jitter_goes_both_ways() -> None:
    values = [jittered(100.0, 0.1) for _ in range(200)]
    assert min(values) < 99.0
    assert max(values) > 101.0
    assert jittered(100.0, 0.0) == 100.0
