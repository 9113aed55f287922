"""What more workers and more connections cost.

- ``1 worker``, ``2 workers``: the same load. On two cores the second worker shares its core with
  the load, so it is the CPU per request that has to stay flat.
- ``N active``: N connections with one request at a time each. ``kib`` is how much memory rose at
  its peak over that of a proxy just started, for each connection.
- ``N idle``: N connections that had one request each; ``kib`` likewise, at rest. The cost per
  request is that of others (10x10) while these are open.

Proxies are started anew for each round of the last two: an allocator keeps what it once had.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

from benchmarks.connections import HeldConnections
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Harness, Proxy, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED, Peer
from benchmarks.scenarios.base import CPU, Figure, Scenario
from benchmarks.spread import Sample

SHAPE = Shape(10, 10, 8_000)
WORKERS = (1, 2)
CONNECTIONS = (1, 10, 100, 1000, 2000)
_WARM_UP = Load(Shape(1, 10, 200), "/1k")
_SPARE_DESCRIPTORS = 200
_Counted = tuple[int, Sample]

FIGURES = (
    CPU,
    Figure("kib", "KiB/connection"),
    Figure("rps", "requests/s", 0),
    Figure("p50_us", "p50 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("rest_mib", "MiB before"),
    Figure("peak_mib", "peak MiB"),
    Figure("fds", "fds", 0),
)


def run(harness: Harness, counts: tuple[int, ...] = CONNECTIONS) -> Results:
    """Workers first, then connections."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    allowed = _raise_limit()
    if allowed < max(counts):
        results.notes.append(f"no more than {allowed} connections: the limit of descriptors")
        counts = tuple(count for count in counts if count <= allowed)
    with harness.nghttpds() as ports:
        for workers in WORKERS:
            _workers(harness, results, ports, peers, workers)
        samples: dict[tuple[str, str], list[Sample]] = {}
        for number in range(harness.options.fresh_rounds):
            for peer in peers:
                for kind, measure in (("active", _active), ("idle", _idle)):
                    harness.say(f"connections, {kind}, {peer.name}, round {number + 1}")
                    try:
                        with harness.proxy(peer, ports) as proxy:
                            for count, sample in measure(harness, proxy, counts):
                                samples.setdefault((f"{count} {kind}", peer.name), []).append(
                                    sample
                                )
                    except BenchmarkError as error:
                        results.fail(kind, peer.name, str(error))
    for kind in ("active", "idle"):
        for count in counts:
            for peer in peers:
                if kept := samples.get((f"{count} {kind}", peer.name)):
                    results.add(f"{count} {kind}", peer.name, kept)
    return results


def _workers(
    harness: Harness, results: Results, ports: tuple[int, ...], peers: list[Peer], workers: int
) -> None:
    case = f"{workers} worker" if workers == 1 else f"{workers} workers"
    if not harness.proxy_cores(workers).separate:
        results.notes.append(f"{case}: the load shares a core with the proxy")
    with harness.proxies(results, case, ports, peers, workers) as proxies:
        harness.request_rounds(results, case, proxies, Load(SHAPE, "/1k"))


def _active(harness: Harness, proxy: Proxy, counts: tuple[int, ...]) -> Iterator[_Counted]:
    harness.send(proxy, _WARM_UP)
    before_kib = proxy.tree.resident().total_kib
    for count in counts:
        requests = max(2 * count, round(2_000 * harness.options.work))
        sample = dict(harness.send(proxy, Load(Shape(count, 1, requests), "/1k")))
        _add_memory(sample, before_kib, sample["peak_mib"] * 1024, count)
        yield count, sample


def _idle(harness: Harness, proxy: Proxy, counts: tuple[int, ...]) -> Iterator[_Counted]:
    harness.send(proxy, _WARM_UP)
    before_kib = proxy.tree.resident().total_kib
    with HeldConnections(proxy.port) as held:
        for count in counts:
            held.open_idle(count - len(held), "/1k")
            after_kib = proxy.tree.resident().total_kib
            sample = dict(harness.send(proxy, Load(SHAPE.scaled(harness.options.work / 4), "/1k")))
            _add_memory(sample, before_kib, after_kib, count)
            yield count, sample


def _add_memory(sample: dict[str, float], before_kib: float, after_kib: float, count: int) -> None:
    sample["rest_mib"] = before_kib / 1024
    if count >= 100:  # below, it is the load's own memory that shows
        sample["kib"] = (after_kib - before_kib) / count


def _raise_limit() -> int:
    """Take as many descriptors as we may; how many connections that allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A proxy may need two for each connection: one on either side.
    return (hard - _SPARE_DESCRIPTORS) // 2


SCENARIO = Scenario("scale", "Workers and connections", FIGURES, run)
