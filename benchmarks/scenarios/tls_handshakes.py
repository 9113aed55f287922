"""What a handshake of TLS 1.3 costs a proxy (ECDSA P-256, X25519), as its own CPU time.

``full`` and ``resumed`` are handshakes alone: the client closes as soon as it has sent its
Finished. ``full + GET`` and ``resumed + GET`` are connections with one request over HTTP/1.1.
Several clients share the load's core; the proxy is not what is slow.
"""

from __future__ import annotations

import time

from benchmarks.harness import MIB_KIB, Harness, Proxy, Results
from benchmarks.peers import INTERPRETED
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample
from benchmarks.tls.burst import Burst
from benchmarks.tls.clients import Clients

CLIENTS = 4
HANDSHAKES = 1_600
"""Of one round, all clients together."""

_LEAST = 5

CASES = {
    "full": (False, False),
    "resumed": (True, False),
    "full + GET": (False, True),
    "resumed + GET": (True, True),
}
"""Whether it is resumed, and whether there is a request."""

FIGURES = (
    Figure("cpu_us", "CPU us/handshake", 1),
    Figure("per_cpu_s", "handshakes/CPU s", 0),
    Figure("per_s", "handshakes/s", 0),
    Figure("peak_mib", "peak MiB"),
    Figure("switches", "switches/handshake", 2),
)


def run(harness: Harness) -> Results:
    """Each case in turn, all proxies running throughout."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    material = harness.material()
    with (
        harness.web_backend() as ports,
        harness.proxies(
            results, "start", ports, peers, http1_in=True, http1_out=True, tls=material
        ) as proxies,
        Clients(harness, material, CLIENTS) as clients,
    ):
        for case, (resumed, request) in CASES.items():
            _rounds(harness, results, case, proxies, clients, resumed=resumed, request=request)
    return results


def _rounds(
    harness: Harness,
    results: Results,
    case: str,
    proxies: list[Proxy],
    clients: Clients,
    *,
    resumed: bool,
    request: bool,
) -> None:
    each = max(_LEAST, round(HANDSHAKES * harness.options.work / CLIENTS))

    def measure(proxy: Proxy, count: int) -> Sample:
        burst = Burst(count=count, port=proxy.port, resumed=resumed, request=request)
        return _measure(clients, proxy, burst)

    harness.rounds(
        results,
        case,
        proxies,
        lambda proxy: measure(proxy, each),
        warm_up=lambda proxy: measure(proxy, max(_LEAST, each // 5)),
    )


def _measure(clients: Clients, proxy: Proxy, burst: Burst) -> Sample:
    tree = proxy.tree
    tree.reset_peak()
    before = tree.usage()
    began_s = time.perf_counter()
    clients.do_each([burst] * len(clients))
    took_s = time.perf_counter() - began_s
    used = tree.usage().since(before)
    count = burst.count * len(clients)
    cpu_us = used.cpu_us / count
    return {
        "cpu_us": cpu_us,
        "per_cpu_s": 1e6 / cpu_us,
        "per_s": count / took_s,
        "peak_mib": tree.peak().total_kib / MIB_KIB,
        "switches": used.switches / count,
    }


SCENARIO = Scenario("tls-handshakes", "Handshakes of TLS 1.3", FIGURES, run)
