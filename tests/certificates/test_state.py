"""What is kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.certificates.state import Known, State
from tests.tls.test_resumption import path


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(str(tmp_path / "a" / "b"), "f" * 64)
    state.prepare()
    return state


def test_saved_and_found(state: State):
    assert (state.known(), state.response(), state.stamp()) == (None, b"", (0, 0))
    state.save(Known(names=["localhost"], fetches=3, next_at=12.5), b"a response")
    stamp = state.stamp()
    assert state.known() == Known(names=["localhost"], fetches=3, next_at=12.5)
    assert state.response() == b"a response"
    state.save(Known(names=[]), None)
    assert state.stamp() != stamp
    assert state.response() == b"a response"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"names": 3}', b"\xff\xfe", b'{"names":['])
def test_a_damaged_file_is_none(damage: bytes, state: State):
    state.save(Known(names=[]), None)
    state._known.write_bytes(damage)
    assert state.known() is None


def test_nothing_else_is_left_behind(state: State):
    state.save(Known(names=[]), b"x")
    with state.claimed():
        pass
    names = {file.suffix for file in state._known.parent.iterdir()}
    assert names == {".der", ".json", ".lock"}


def test_one_process_at_a_time(state: State, tmp_path: Path):
    script = f"""
from gateway.certificates.state import State
with State({str(tmp_path / "a" / "b")!r}, {"f" * 64!r}).claimed() as mine:
    print(mine)
"""

    def other() -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": path()},
            check=True,
        )
        return done.stdout.strip()

    with state.claimed() as mine:
        assert mine
        assert other() == "False"
    assert other() == "True"
