"""What TLS handshakes cost, and what a connection costs that then does nothing.

- ``full``: connections with one request each, by h2load, so many at a time that the sockets are
  full. ECDSA P-256 and X25519 for all.
- ``resumed``: connections one after the other that resume a session, with one request each.
- ``idle``: ``kib`` is how much memory rose for each connection that had one request and is at
  rest, over that of a proxy just started.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from benchmarks.connections import TlsConnections
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Harness, Proxy, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED
from benchmarks.process import pause
from benchmarks.scenarios.base import CPU, Figure, Scenario, Target
from benchmarks.spread import Sample
from benchmarks.tls.client import Client, Visit

FULL = Shape(500, 1, 500)
RESUMED = 200
IDLE = 400
_REST_S = 3.0  # above the second after which the gateway trims a session that is not used
_WARM_UP = Load(Shape(4, 1, 40), "/1k", http1=True, tls=True)

FIGURES = (
    CPU,
    Figure("per_core", "handshakes/CPU second", 0),
    Figure("kib", "KiB/connection"),
)


def run(harness: Harness, full: Shape = FULL, resumed: int = RESUMED, idle: int = IDLE) -> Results:
    """Both kinds of handshakes, then idle connections, for which proxies are started anew."""
    results = Results()
    material = harness.material()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    client = Client(material)
    load = Load(full.scaled(harness.options.work), "/1k", http1=True, tls=True)
    count = max(round(resumed * harness.options.work), 5)
    with harness.web_backend() as ports:
        with harness.proxies(
            results, "start", ports, peers, http1_in=True, http1_out=True, tls=material
        ) as proxies:
            harness.rounds(
                results,
                "full",
                proxies,
                lambda proxy: _per_core(harness.send(proxy, load)),
                warm_up=lambda proxy: harness.send(proxy, _WARM_UP),
            )
            harness.rounds(
                results, "resumed", proxies, lambda proxy: _resumed(client, proxy, count)
            )
        samples: dict[str, list[Sample]] = {}
        for number in range(harness.options.fresh_rounds):
            for peer in peers:
                harness.say(f"idle, {peer.name}, round {number + 1}")
                with ExitStack() as stack:
                    try:
                        proxy = stack.enter_context(
                            harness.proxy(peer, ports, http1_out=True, tls=material)
                        )
                        harness.send(proxy, replace(_WARM_UP, http1=False))
                        samples.setdefault(peer.name, []).append(_idle(proxy, idle))
                    except BenchmarkError as error:
                        results.fail("idle", peer.name, str(error))
    for name, kept in samples.items():
        results.add("idle", name, kept)
    return results


def _per_core(sample: Sample) -> Sample:
    return {**sample, "per_core": 1e6 / sample["cpu_us"]}


def _resumed(client: Client, proxy: Proxy, count: int) -> Sample:
    how = Visit(proxy.port)
    _, session = client.visit(how)
    before = proxy.tree.usage()
    for _ in range(count):
        _, session = client.visit(how, session)
    return _per_core({"cpu_us": proxy.tree.usage().since(before).cpu_us / count})


def _idle(proxy: Proxy, count: int) -> Sample:
    before_kib = proxy.tree.resident().total_kib
    with TlsConnections(proxy.port) as held:
        held.open_idle(count, "/1k")
        pause(_REST_S)
        return {"kib": (proxy.tree.resident().total_kib - before_kib) / count}


SCENARIO = Scenario(
    "tls-handshakes",
    "TLS 1.3 handshakes and idle connections",
    FIGURES,
    run,
    (Target("full", "nginx", 1 / 0.7),),
)
