"""Memory of idle connections over TLS: each had a handshake (HTTP/2 by ALPN) and one request.

``kib`` is how much the resident memory rose, for each connection. Proxies are started anew for each
round: an allocator keeps what it once had.
"""

from __future__ import annotations

from benchmarks.connections import TlsConnections
from benchmarks.errors import BenchmarkError
from benchmarks.harness import MIB_KIB, Harness, Proxy, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample

CONNECTIONS = 500
_WARM_UP = Load(Shape(1, 10, 200), "/1k", tls=True)

FIGURES = (
    Figure("kib", "KiB/connection"),
    Figure("rest_mib", "MiB before"),
    Figure("held_mib", "MiB with them"),
    Figure("fds", "fds", 0),
)


def run(harness: Harness) -> Results:
    """One case."""
    results = Results()
    count = CONNECTIONS
    case = f"{count} idle"
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    material = harness.material()
    samples: dict[str, list[Sample]] = {}
    with harness.nghttpds() as ports:
        for number in range(harness.options.fresh_rounds):
            for peer in peers:
                harness.say(f"{case}, {peer.name}, round {number + 1}")
                try:
                    with harness.proxy(peer, ports, tls=material) as proxy:
                        sample = _measure(harness, proxy, count)
                    samples.setdefault(peer.name, []).append(sample)
                except BenchmarkError as error:
                    results.fail(case, peer.name, str(error))
    for name, kept in samples.items():
        results.add(case, name, kept)
    return results


def _measure(harness: Harness, proxy: Proxy, count: int) -> Sample:
    harness.send(proxy, _WARM_UP)
    before_kib = proxy.tree.resident().total_kib
    with TlsConnections(proxy.port) as held:
        held.open_idle(count, "/1k")
        after_kib = proxy.tree.resident().total_kib
        descriptors = proxy.tree.descriptors()
    return {
        "kib": (after_kib - before_kib) / count,
        "rest_mib": before_kib / MIB_KIB,
        "held_mib": after_kib / MIB_KIB,
        "fds": float(descriptors),
    }


SCENARIO = Scenario("tls-idle", "Idle connections over TLS 1.3", FIGURES, run)
