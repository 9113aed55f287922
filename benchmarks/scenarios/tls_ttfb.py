"""Time to first byte: from connect to the response to a new connection's first GET.

Over HTTP/1.1, with and without 20 ms of network, in the ways in which a client may come to trust
the certificate: see :mod:`benchmarks.tls.visits`. The network is :mod:`benchmarks.tls.relay` (which
says what it leaves out), and it lies before the responder as it does before the proxies. What the
client, a Python program, costs is the same for all proxies.

Below the table is, for each proxy, by how much a visit gets shorter when the client looks nothing
up; ``AIM`` is where that ought to be. p99 is of the visits of one round, and where there are fewer
than a hundred it is their slowest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.harness import Harness, Proxy, Results
from benchmarks.peers import INTERPRETED, Peer
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample, percentile
from benchmarks.tls.clients import Clients, relays, responder
from benchmarks.tls.visits import Kind, Visits

NETWORKS_MS = (0, 20)
RESPONDERS_MS = (0, 20, 50)
AIM = 0.34
"""63 ms of 186 ms, which was reported of resumption with a staple beside a full TLS 1.2 handshake
and a look-up."""

FULL = "full"
LOOK_UP = "full + look-up"
OLD = "TLS 1.2 full + look-up"
STAPLE = "full + staple"
RESUMED = "resumed"
EARLY = "resumed + 0-RTT"

STAPLES_NOTHING = frozenset({"nghttpx"})

FIGURES = (Figure("p50_ms", "p50 ms", 2), Figure("p99_ms", "p99 ms", 2))

_ROUND_S = 0.6
_LEAST = 3
_MOST = 200
_CLIENT_MS = 3
_ROUND_TRIPS: Mapping[Kind, int] = {"look-up": 5, "old": 7, "early": 2}


@dataclass(frozen=True)
class Case:
    """A row: ``network_ms`` is the round trip, ``responder_ms`` how long a look-up takes beside."""

    title: str
    kind: Kind
    network_ms: int
    responder_ms: int | None = None

    @property
    def label(self) -> str:
        """What the report calls it."""
        responder = "" if self.responder_ms is None else f", responder {self.responder_ms} ms"
        return f"network {self.network_ms} ms{responder}: {self.title}"

    def count(self, work: float) -> int:
        """Visits of one round, by how long each takes; one round trip more is the closing."""
        trips = _ROUND_TRIPS.get(self.kind, 3) + 1
        each_ms = _CLIENT_MS + self.network_ms * trips + (self.responder_ms or 0)
        return max(_LEAST, min(_MOST, math.ceil(work * _ROUND_S * 1e3 / each_ms)))

    def is_for(self, peer: Peer) -> bool:
        """Whether ``peer`` can do it."""
        if self.kind == "early":
            return peer.early_data
        return self.kind != "staple" or peer.name not in STAPLES_NOTHING


def cases(network_ms: int) -> Iterator[Case]:
    """Those with that network."""
    for responder_ms in RESPONDERS_MS:
        yield Case(LOOK_UP, "look-up", network_ms, responder_ms)
        yield Case(OLD, "old", network_ms, responder_ms)
    yield Case(FULL, "full", network_ms)
    yield Case(STAPLE, "staple", network_ms)
    yield Case(RESUMED, "resumed", network_ms)
    yield Case(EARLY, "early", network_ms)


def run(harness: Harness) -> Results:
    """Each case in turn, all proxies running throughout."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    material = replace(harness.material(), tls12=True)
    with (
        harness.web_backend() as ports,
        harness.proxies(
            results, "start", ports, peers, http1_in=True, http1_out=True, tls=material
        ) as proxies,
        responder(harness, material) as asked,
        Clients(harness, material) as clients,
    ):
        for network_ms in NETWORKS_MS:
            targets = [asked, *(proxy.port for proxy in proxies)]
            with relays(harness, targets, network_ms / 1e3) as ways:
                for case in cases(network_ms):
                    able = [proxy for proxy in proxies if case.is_for(proxy.peer)]
                    _rounds(harness, results, case, able, clients, ways, asked)
    results.notes += absent([proxy.peer for proxy in proxies])
    results.notes += gains(results, [proxy.name for proxy in proxies])
    return results


def _rounds(
    harness: Harness,
    results: Results,
    case: Case,
    proxies: list[Proxy],
    clients: Clients,
    ways: Mapping[int, int],
    asked: int,
) -> None:
    def visit(proxy: Proxy, count: int) -> Sample:
        visits = Visits(
            kind=case.kind,
            count=count,
            port=ways[proxy.port],
            direct=proxy.port,
            rtt_s=case.network_ms / 1e3,
            responder=ways[asked],
            delay_s=(case.responder_ms or 0) / 1e3,
        )
        return summary(clients.do(visits))

    harness.rounds(
        results,
        case.label,
        proxies,
        lambda proxy: visit(proxy, case.count(harness.options.work)),
        warm_up=lambda proxy: visit(proxy, _LEAST),
    )


def summary(times_us: Iterable[float]) -> Sample:
    """The figures of one round."""
    ordered = sorted(times_us)
    return {f"p{n}_ms": percentile(ordered, n / 100) / 1e3 for n in (50, 99)}


def absent(peers: Iterable[Peer]) -> list[str]:
    """Who can't do what."""
    kinds = {case.title: case for case in cases(0)}
    notes = []
    for peer in peers:
        notes += [
            f"{title}: - ({peer.name} can't)"
            for title, case in kinds.items()
            if not case.is_for(peer)
        ]
    return notes


def gains(results: Results, names: Iterable[str]) -> list[str]:
    """For each proxy, network and responder: visits without a look-up by those with one."""
    notes = []
    for name in names:
        for network_ms in NETWORKS_MS:
            by_title = {case.title: case for case in cases(network_ms)}
            for responder_ms in RESPONDERS_MS:
                for slow in (
                    Case(LOOK_UP, "look-up", network_ms, responder_ms),
                    Case(OLD, "old", network_ms, responder_ms),
                ):
                    shares = [
                        f"{title} {share:.2f}"
                        for title in (STAPLE, RESUMED, EARLY)
                        if (share := _share(results, name, by_title[title], slow)) is not None
                    ]
                    if shares:
                        notes.append(
                            f"{name}, network {network_ms} ms, responder {responder_ms} ms, p50 of "
                            f"{slow.title} = 1: {', '.join(shares)} (aim for {RESUMED}: {AIM})"
                        )
    return notes


def _share(results: Results, name: str, fast: Case, slow: Case) -> float | None:
    ours = results.median(fast.label, name, "p50_ms")
    theirs = results.median(slow.label, name, "p50_ms")
    return None if ours is None or not theirs else ours / theirs


SCENARIO = Scenario("tls-ttfb", "Time to first byte over TLS 1.3", FIGURES, run)
