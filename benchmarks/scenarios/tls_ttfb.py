"""Time to first byte: from connect to the response to a new connection's first GET.

Over HTTP/1.1, with and without 20 ms of network, in the ways in which a client may come to trust
the certificate: see :mod:`benchmarks.tls.visits`, and :mod:`benchmarks.tls` for what the network
is. ``TLS 1.2, full + look-up`` is what many clients in the field still do. What the client, which
is a Python program, costs is the same for all proxies.

What it says of the whole way: below the table, for each proxy, is by how much a visit gets shorter
when the client looks nothing up; ``AIM`` is where it ought to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.harness import Harness, Proxy, Results
from benchmarks.peers import GATEWAY, INTERPRETED, Tls
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample, percentile
from benchmarks.tls import material
from benchmarks.tls.clients import Clients, relays, responder
from benchmarks.tls.visits import Kind, Visits

NETWORKS_MS = (0, 20)
RESPONDERS_MS = (0, 20, 50)
AIM = 0.34

EARLY = frozenset({GATEWAY, "nginx", "haproxy", "nghttpx"})
"""Who takes early data."""

STAPLING = frozenset({GATEWAY, "envoy", "nginx", "haproxy"})
"""Who is given a staple."""

LOOK_UP = "full + look-up"
FULL = "full"
STAPLE = "full + staple"
RESUMED = "resumed"
ZERO_RTT = "resumed + 0-RTT"

FIGURES = (
    Figure("p50_ms", "p50 ms", 2),
    Figure("p99_ms", "p99 ms", 2),
    Figure("cpu_us", "CPU us/connection", 0),
)

_SECONDS = 0.6
_LEAST = 3
_MOST = 200


@dataclass(frozen=True)
class Case:
    """A row; ``network_ms`` is the round trip, ``responder_ms`` what a look-up takes beside it."""

    title: str
    kind: Kind
    network_ms: int
    responder_ms: int | None = None
    version: str = "1.3"

    @property
    def label(self) -> str:
        """What the report calls it."""
        name = self.title
        if self.responder_ms is not None:
            name += f" of {self.responder_ms} ms"
        return f"{self.network_ms} ms: {name}"

    @property
    def round_trips(self) -> int:
        """Until the first byte comes: TCP, TLS, the request, and both for a look-up."""
        trips = {"early": 2, "look-up": 5}.get(self.kind, 3)
        return trips + (1 if self.version == "1.2" else 0)

    def count(self, work: float) -> int:
        """Visits of one round."""
        each_ms = 3 + self.network_ms * (self.round_trips + 1) + (self.responder_ms or 0)
        return max(_LEAST, min(_MOST, math.ceil(work * _SECONDS * 1e3 / each_ms)))

    def takes_part(self, name: str) -> bool:
        """Whether the peer of that name can do it."""
        if self.kind == "early":
            return name in EARLY
        return self.kind != "staple" or name in STAPLING


def cases() -> Iterator[Case]:
    """All of them, in the order of the report."""
    for network_ms in NETWORKS_MS:
        for responder_ms in RESPONDERS_MS:
            yield Case(f"TLS 1.2, {LOOK_UP}", "look-up", network_ms, responder_ms, "1.2")
        for responder_ms in RESPONDERS_MS:
            yield Case(LOOK_UP, "look-up", network_ms, responder_ms)
        yield Case(FULL, "full", network_ms)
        yield Case(STAPLE, "staple", network_ms)
        yield Case(RESUMED, "resumed", network_ms)
        yield Case(ZERO_RTT, "early", network_ms)


def run(harness: Harness) -> Results:
    """Each case in turn, all proxies running throughout."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    files = material.make_in(harness.directory)
    tls = Tls(files, early_data=True, oldest="1.2")
    with (
        harness.web_backend() as ports,
        harness.proxies(
            results, "start", ports, peers, http1_in=True, http1_out=True, tls=tls
        ) as proxies,
        responder(harness, files) as asked,
        Clients(harness, files) as clients,
    ):
        targets = [asked, *(proxy.port for proxy in proxies)]
        for network_ms in NETWORKS_MS:
            with relays(harness, targets, network_ms / 1e3) as reached:
                for case in cases():
                    if case.network_ms == network_ms:
                        able = [proxy for proxy in proxies if case.takes_part(proxy.name)]
                        _rounds(harness, results, case, able, clients, reached, reached[asked])
    for name in [proxy.name for proxy in proxies]:
        results.notes += shares(results, name)
    results.notes += [f"{case.label}: - for {names}" for case, names in _absent(results, proxies)]
    return results


def _rounds(
    harness: Harness,
    results: Results,
    case: Case,
    proxies: list[Proxy],
    clients: Clients,
    reached: dict[int, int],
    asked: int,
) -> None:
    count = case.count(harness.options.work)

    def visits(proxy: Proxy, count: int) -> Sample:
        before = proxy.tree.usage()
        times_us = clients.do(
            Visits(
                kind=case.kind,
                count=count,
                port=reached[proxy.port],
                direct=proxy.port,
                version=case.version,
                rtt_s=case.network_ms / 1e3,
                responder=asked,
                delay_s=(case.responder_ms or 0) / 1e3,
            )
        )
        used = proxy.tree.usage().since(before)
        return {**summary(times_us), "cpu_us": used.cpu_us / count}

    harness.rounds(
        results,
        case.label,
        proxies,
        lambda proxy: visits(proxy, count),
        warm_up=lambda proxy: visits(proxy, _LEAST),
    )
