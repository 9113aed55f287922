"""The replay window, against a model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tls.replay import PERIOD_S, ReplayWindow

from .test_resumption import path


@pytest.fixture
def window() -> Iterator[ReplayWindow]:
    window = ReplayWindow(256)
    yield window
    window.close()


def test_once(window: ReplayWindow):
    assert window.first_time(b"a", 0.0)
    assert not window.first_time(b"a", 0.0)
    assert window.first_time(b"b", 0.0)
    # Over the border of two periods, for at least one.
    assert not window.first_time(b"a", PERIOD_S * 1.99)
    assert window.first_time(b"c", PERIOD_S - 0.1)
    assert not window.first_time(b"c", PERIOD_S + 0.1)


def test_it_forgets(window: ReplayWindow):
    assert window.first_time(b"a", 0.0)
    assert window.first_time(b"a", PERIOD_S * 2)
    assert not window.first_time(b"a", PERIOD_S * 2)
    assert window.first_time(b"a", PERIOD_S * 100)


def test_full_is_as_seen():
    window = ReplayWindow(64)
    taken = sum(window.first_time(b"%d" % n, 0.0) for n in range(1000))
    assert 32 < taken <= 64
    assert window.first_time(b"x", PERIOD_S * 2)
    window.close()


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0.0, 30.0)), max_size=40))
def test_as_a_model(steps: list[tuple[int, float]]):
    window = ReplayWindow(1024)
    last: dict[int, int] = {}
    now = 0.0
    for key, later in steps:
        now += later
        period = int(now / PERIOD_S)
        known = key in last and period - last[key] <= 1
        assert window.first_time(b"%d" % key, now) == (not known)
        if not known:
            last[key] = period
    window.close()


def test_shared_over_a_fork():
    script = """
import os, sys
from gateway.tls.replay import ReplayWindow
window = ReplayWindow()
pid = os.fork()
if pid == 0:
    os._exit(0 if window.first_time(b"a", 1.0) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code or window.first_time(b"a", 1.0))
"""
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": path()}, check=False)
    assert done.returncode == 0
