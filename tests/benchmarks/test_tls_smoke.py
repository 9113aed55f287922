"""The scenarios of TLS once, small: no figure means anything."""

from __future__ import annotations

import pytest

from benchmarks.harness import Harness, Options, Results
from benchmarks.peers import PEERS
from benchmarks.process import ROOT, find_program
from benchmarks.scenarios import Scenario, tls_1k, tls_handshakes, tls_idle, tls_ttfb

pytestmark = pytest.mark.skipif(
    not all(map(find_program, ("h2load", "nghttpd", "nginx"))),
    reason="nghttp2-client, nghttp2-server or nginx is not installed",
)

NAMES = {"gateway", "nginx"}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is there whether or not one is installed.
    monkeypatch.setenv("GATEWAY_PATH", str(ROOT))


def run(scenario: Scenario) -> Results:
    peers = [PEERS[name] for name in sorted(NAMES)]
    with Harness(Options(peers, rounds=1, work=0.005)) as harness:
        results = scenario.run(harness)
    assert results.failures == {}
    shown = {figure.key for figure in scenario.figures}
    for case in results.cells.values():
        assert set(case) == NAMES
        for figures in case.values():
            assert shown <= set(figures)
    return results


def test_requests() -> None:
    cases = run(tls_1k.SCENARIO).cells
    assert set(cases) == {"GET 10x10", "POST 10x10", "GET 64x1", "POST 64x1"}


def test_handshakes() -> None:
    cases = run(tls_handshakes.SCENARIO).cells
    assert set(cases) == set(tls_handshakes.CASES)


def test_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_idle, "CONNECTIONS", 30)
    assert set(run(tls_idle.SCENARIO).cells) == {"30 idle"}


def test_first_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_ttfb, "NETWORKS_MS", (0, 10))
    monkeypatch.setattr(tls_ttfb, "RESPONDERS_MS", (5,))
    results = run(tls_ttfb.SCENARIO)
    medians = {case: results.median(case, "nginx", "p50_ms") or 0.0 for case in results.cells}
    assert len(medians) == 12
    # Round trips: TCP, TLS and the request; for a look-up two more.
    assert medians["network 10 ms: full"] >= 30
    assert medians["network 10 ms: resumed + 0-RTT"] >= 20
    assert medians["network 10 ms, responder 5 ms: full + look-up"] >= 55
    # TLS 1.2 and a look-up by name: two more again.
    assert medians["network 10 ms, responder 5 ms: TLS 1.2 full + look-up"] >= 75
    assert sum("nginx, network" in note for note in results.notes) == 4
