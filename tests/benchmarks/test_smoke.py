"""The whole thing once, small: the gateway alone, so few requests that no figure means anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.process import ROOT, find_program

pytestmark = pytest.mark.skipif(
    not (find_program("h2load") and find_program("nghttpd")),
    reason="nghttp2-client or nghttp2-server is not installed",
)

FIGURES = {
    "cpu_us",
    "rps",
    "p50_us",
    "p90_us",
    "p99_us",
    "peak_mib",
    "worker_mib",
    "fds",
    "switches",
}


def run(*arguments: str) -> str:
    # The interpreted gateway: it is there whether or not one is installed.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_PATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    table = run("unary-1k", "--peers=", "--rounds=2", "--work=0.005", f"--json={file}")
    assert "| 10x10 | gateway |" in table
    cases = json.loads(file.read_bytes())["scenarios"]["unary-1k"]["cases"]
    assert set(cases) == {"10x10", "64x1", "1x1"}
    for case in cases.values():
        assert set(case) == {"gateway"}
        assert set(case["gateway"]) == FIGURES
        for summary in case["gateway"].values():
            assert len(summary["values"]) == 2
        assert case["gateway"]["cpu_us"]["low"] > 0


def test_the_quick_line() -> None:
    (line,) = run("--quick", "--peers=", "--work=0.01").splitlines()
    answer = json.loads(line)
    assert answer["compiled"] is False
    assert set(answer["cpu_us_per_request"]["gateway"]) == {"10x10", "64x1"}
    assert answer["ratio"] == {}


def test_an_unknown_peer_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--peers=apache"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "'apache' is none of" in done.stderr
