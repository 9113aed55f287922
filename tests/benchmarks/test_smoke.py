"""The whole thing once, small: the gateway alone, so few requests that no figure means anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import Harness, Options, Results
from benchmarks.peers import PEERS
from benchmarks.process import ROOT, find_program
from benchmarks.scenarios import grpc_tokens, sse_tokens

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


needs_nginx = pytest.mark.skipif(not find_program("nginx"), reason="nginx is not installed")


def cases_of(file: Path, scenario: str) -> dict[str, Any]:
    """The cases of ``scenario``, of which none failed."""
    found = json.loads(file.read_bytes())["scenarios"][scenario]
    assert found["failures"] == {}
    cases: dict[str, Any] = found["cases"]
    return cases


@needs_nginx
def test_requests_of_http1(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    # HAProxy's responses are the ones that h2load is particular about.
    others = ["haproxy"] if find_program("haproxy") else []
    table = run(
        "http1-1k",
        "http1-to-h2",
        f"--peers={','.join(others)}",
        "--rounds=1",
        "--work=0.005",
        f"--json={file}",
    )
    assert "- target: 64x1, CPU us/request at most 0.70 of envoy's: not measured" in table
    expected = {
        "http1-1k": {"10x1", "64x1"},
        "http1-to-h2": {"HTTP/1.1 to HTTP/2, 64x1", "HTTP/2 to HTTP/1.1, 10x10"},
    }
    for scenario, names in expected.items():
        cases = cases_of(file, scenario)
        assert set(cases) == names
        for case in cases.values():
            assert set(case) == {"gateway", *others}
            assert set(case["gateway"]) == FIGURES
            assert case["gateway"]["cpu_us"]["low"] > 0


def test_streams_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_tokens, "STREAMS", (10,))
    monkeypatch.setenv("GATEWAY_PATH", str(ROOT))
    with Harness(Options([PEERS["gateway"]], rounds=1, work=0.2)) as harness:
        results = sse_tokens.SCENARIO.run(harness)
    assert results.failures == {}
    assert results.notes == []
    (case,) = results.cells.values()
    assert set(case) == {"gateway", "direct"}
    shown = {figure.key for figure in sse_tokens.FIGURES}
    assert shown <= set(case["gateway"])
    assert case["gateway"]["cpu_us"].low > 0
    for figures in case.values():
        assert figures["load"].low > 0
        assert figures["lost"].high == 0


def test_lost_events_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Results()
    made.add("10 streams", "envoy", [{"lost": 0.0}, {"lost": 0.0}, {"lost": 1200.0}])
    made.add("10 streams", "nginx", [{"lost": 0.0}])
    monkeypatch.setattr(grpc_tokens, "run", lambda *_: made)
    with Harness(Options([])) as harness:
        assert sse_tokens.run(harness).notes == ["10 streams: envoy lost 1,200 events"]


def test_the_quick_line() -> None:
    (line,) = run("--quick", "--peers=", "--work=0.01").splitlines()
    answer = json.loads(line)
    assert answer["compiled"] is False
    shapes = {"10x10", "64x1", *(["http1 64x1"] if find_program("nginx") else [])}
    assert set(answer["cpu_us_per_request"]["gateway"]) == shapes
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
