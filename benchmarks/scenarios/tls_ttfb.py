"""The time to the first byte of the response on a new TLS connection.

A client connects, shakes hands, learns whether the certificate is revoked, asks, and waits for the
first byte: see :mod:`benchmarks.tls.client`. It learns the status

- ``staple``: from the OCSP response that the proxy staples;
- ``look-up N``: by asking the responder itself, which takes N ms to answer;
- ``resumed``: not at all, because it resumes a session in which it was checked;
- ``0-RTT``: likewise, and the request goes with the first flight.

``rtt N``: N ms are added to each round trip by a relay, between client and proxy and between
client and responder. The connection to the endpoint is there already in all cases.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Harness, Proxy, Results
from benchmarks.peers import GATEWAY, INTERPRETED
from benchmarks.process import ROOT
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample, latencies
from benchmarks.tls.client import Client, Visit
from gateway.certs.responder import Responder

RTTS_MS = (0, 20)
LOOK_UPS_MS = (0, 20, 50)
VISITS = 40
MOST = 0.34
"""What a resumed session may take of a full handshake with a look-up: 63 ms of 186 ms."""

FIGURES = (
    Figure("p50_us", "p50 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("mean_us", "mean us", 0),
)


def run(
    harness: Harness,
    rtts: tuple[int, ...] = RTTS_MS,
    look_ups: tuple[int, ...] = LOOK_UPS_MS,
    visits: int = VISITS,
) -> Results:
    """All cases for each delay of the network."""
    results = Results()
    material = harness.material()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    client = Client(material)
    with (
        harness.web_backend() as ports,
        material.responder() as responder,
        harness.proxies(
            results, "start", ports, peers, http1_in=True, http1_out=True, tls=material
        ) as proxies,
    ):
        for rtt in rtts:
            count = max(round(visits * harness.options.work / (4 if rtt else 1)), 3)
            _measure(harness, results, proxies, client, responder, rtt, look_ups, count)
    results.notes += _ratios(results, rtts, look_ups)
    return results


def _measure(
    harness: Harness,
    results: Results,
    proxies: list[Proxy],
    client: Client,
    responder: Responder,
    rtt: int,
    look_ups: tuple[int, ...],
    count: int,
) -> None:
    with ExitStack() as stack:
        near = {proxy.name: stack.enter_context(_at_distance(proxy.port, rtt)) for proxy in proxies}
        asked = stack.enter_context(_at_distance(responder.port, rtt))

        def case(
            name: str,
            contenders: list[Proxy],
            look_up: int | None = None,
            resumed: bool = False,
            early_data: bool = False,
        ) -> None:
            def measure(proxy: Proxy) -> Sample:
                visit = Visit(near[proxy.name], rtt / 1000, look_up, early_data)
                return _visits(client, visit, resumed, count)

            harness.rounds(results, f"{name}, rtt {rtt}", contenders, measure, warm_up=measure)

        for delay in look_ups:
            responder.behaviour.delay_s = delay / 1000
            case(f"look-up {delay}", proxies, look_up=asked)
        # nghttpx was given no staple.
        case("staple", [proxy for proxy in proxies if proxy.name != "nghttpx"])
        case("resumed", proxies, resumed=True)
        early = [proxy for proxy in proxies if proxy.peer.early_data]
        case("0-RTT", early, resumed=True, early_data=True)


def _visits(client: Client, how: Visit, resumed: bool, count: int) -> Sample:
    session = None
    if resumed:
        _, session = client.visit(Visit(how.port, how.rtt_s))
        if session is None:
            raise BenchmarkError("no ticket came")
    times = []
    for _ in range(count):
        took, fresh = client.visit(how, session)
        times.append(took)
        session = fresh if resumed else None
    return {**latencies(times), "mean_us": sum(times) / len(times)}


@contextmanager
def _at_distance(port: int, rtt: int) -> Iterator[int]:
    """The port by which ``port`` is so many milliseconds away and back."""
    if not rtt:
        yield port
        return
    command = [sys.executable, "-m", "benchmarks.tls.relay", str(port), str(rtt / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as relay:
        try:
            assert relay.stdout is not None
            yield int(relay.stdout.readline())
        finally:
            relay.terminate()


def _ratios(results: Results, rtts: tuple[int, ...], look_ups: tuple[int, ...]) -> Iterator[str]:
    """The field report's comparison, for the gateway."""
    for rtt in rtts:
        resumed = results.median(f"resumed, rtt {rtt}", GATEWAY, "p50_us")
        early = results.median(f"0-RTT, rtt {rtt}", GATEWAY, "p50_us")
        for delay in look_ups:
            full = results.median(f"look-up {delay}, rtt {rtt}", GATEWAY, "p50_us")
            if full and resumed and early:
                yield (
                    f"gateway, rtt {rtt} ms, responder {delay} ms: resumed takes "
                    f"{resumed / full:.2f} of a full handshake with look-up (at most {MOST}), "
                    f"0-RTT {early / full:.2f}; 0-RTT saves {(resumed - early) / 1000:.1f} ms more"
                )


SCENARIO = Scenario("tls-ttfb", "Time to first byte, TLS 1.3", FIGURES, run)
