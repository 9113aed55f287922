"""Responses as visits read them, and the rows of ``tls-ttfb``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from benchmarks.harness import Results
from benchmarks.peers import PEERS
from benchmarks.scenarios import tls_ttfb
from benchmarks.tls.visits import read_response

WHOLE = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 4\r\n\r\nbody"


def pieces(data: Iterable[bytes]) -> Callable[[], bytes]:
    left = iter(data)
    return lambda: next(left, b"")


def test_a_response_is_read_whole_and_by_octets() -> None:
    assert read_response(pieces([WHOLE])) == b"body"
    assert read_response(pieces(bytes([octet]) for octet in WHOLE)) == b"body"
    assert read_response(pieces([WHOLE[20:]]), WHOLE[:20]) == b"body"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (WHOLE[:-1], "closed before"),
        (b"", "closed before"),
        (WHOLE.replace(b"200 OK", b"425 Too Early"), "425 Too Early"),
        (WHOLE.replace(b"Content-Length", b"Content-Type"), "without Content-Length"),
    ],
)
def test_any_other_response_is_an_error(response: bytes, reason: str) -> None:
    with pytest.raises(ConnectionError, match=reason):
        read_response(pieces([response]))


def test_each_case_has_a_label_of_its_own() -> None:
    labels = [case.label for rtt in tls_ttfb.NETWORKS_MS for case in tls_ttfb.cases(rtt)]
    assert len(set(labels)) == len(labels) == 20
    assert labels[0] == "network 0 ms, responder 0 ms: full + look-up"


def test_slow_visits_are_fewer_and_never_none() -> None:
    near, far = (next(tls_ttfb.cases(rtt)) for rtt in (0, 20))
    assert near.count(1) > far.count(1) > far.count(0.2) > 0
    assert near.count(0.001) == far.count(0.001) == 3
    assert near.count(100) == 200


def test_who_can_not_do_a_case_is_left_out_and_said() -> None:
    early = next(case for case in tls_ttfb.cases(0) if case.kind == "early")
    assert {name for name in PEERS if early.is_for(PEERS[name])} >= {"gateway", "nginx"}
    assert tls_ttfb.absent([PEERS["nginx"], PEERS["envoy"]]) == ["resumed + 0-RTT: - (envoy can't)"]


def test_percentiles_are_in_milliseconds() -> None:
    assert tls_ttfb.summary([3000.0, 1000.0, 2000.0]) == {"p50_ms": 2.0, "p99_ms": 3.0}


def test_gains_are_shares_of_the_visit_with_a_look_up() -> None:
    results = Results()
    for responder_ms, title, p50_ms in (
        (50, tls_ttfb.LOOK_UP, 160.0),
        (None, tls_ttfb.RESUMED, 64.0),
        (None, tls_ttfb.EARLY, 40.0),
    ):
        case = tls_ttfb.Case(title, "full", 20, responder_ms)
        results.add(case.label, "nginx", [{"p50_ms": p50_ms}])
    assert tls_ttfb.gains(results, ["nginx", "envoy"]) == [
        "nginx, network 20 ms, responder 50 ms, p50 of full + look-up = 1: resumed 0.40, "
        "resumed + 0-RTT 0.25 (aim for resumed: 0.34)"
    ]
