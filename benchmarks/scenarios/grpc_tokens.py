"""gRPC server streams as model servers send them: 50 small messages a second on each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.backends import StreamPlan, ports_of
from benchmarks.harness import MIB_KIB, Harness, Proxy, Results
from benchmarks.peers import INTERPRETED
from benchmarks.process import ROOT, Child, pause
from benchmarks.scenarios.base import Figure, Scenario
from benchmarks.spread import Sample

STREAMS = (100, 1000)
PLAN = StreamPlan(rate=50, size=64)
SETTLE_S = 0.3
MEASURE_S = 1.2
CLIENT_START_S = 30.0

FIGURES = (
    Figure("cpu_us", "CPU us/message", 2),
    Figure("added_p50_us", "added p50 us", 0),
    Figure("added_p99_us", "added p99 us", 0),
    Figure("p50_us", "p50 us", 0),
    Figure("p99_us", "p99 us", 0),
    Figure("per_s", "messages/s", 0),
    Figure("load", "load's core %", 0),
    Figure("peak_mib", "peak MiB"),
    Figure("fds", "fds", 0),
    Figure("switches", "switches/message", 3),
)


def run(harness: Harness, plan: StreamPlan = PLAN, counts: tuple[int, ...] = STREAMS) -> Results:
    """In each round first without a proxy, then through each of them.

    A message's *added* latency is how much later it comes than without a proxy, percentile
    against percentile of the same round. ``load`` is how much of a core backend and client used,
    in per cent.
    """
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    with (
        harness.stream_backend(plan) as backend,
        harness.proxies(
            results,
            "start",
            ports_of(backend),
            peers,
            http1_in=plan.events,
            http1_out=plan.events,
        ) as proxies,
    ):
        for streams in counts:
            _case(harness, results, streams, backend, proxies, plan)
    return results


def _case(
    harness: Harness,
    results: Results,
    streams: int,
    backend: Child,
    proxies: list[Proxy],
    plan: StreamPlan,
) -> None:
    seconds = harness.options.seconds(MEASURE_S)
    direct: list[Sample] = []

    def measure(proxy: Proxy) -> Sample:
        sample = _through(harness, proxy, backend, streams, seconds, plan)
        for name in ("p50_us", "p99_us"):
            sample[f"added_{name}"] = sample[name] - direct[-1][name]
        return sample

    case = f"{streams} streams"
    harness.rounds(
        results,
        case,
        proxies,
        measure,
        before_round=lambda: direct.append(_direct(harness, backend, streams, seconds, plan)),
    )
    results.add(case, "direct", direct)


@contextmanager
def _client(harness: Harness, port: int, streams: int, plan: StreamPlan) -> Iterator[Child]:
    """A client whose streams are all under way."""
    argv = (
        sys.executable,
        "-m",
        "benchmarks.streams.client",
        str(port),
        f"--streams={streams}",
        f"--size={plan.size}",
        *(["--events"] if plan.events else []),
    )
    child = Child(
        f"stream client of {streams}",
        argv,
        cores=harness.cores.load,
        log=harness.directory / f"client-{port}.log",
        env={"PYTHONPATH": str(ROOT)},
        talks=True,
    )
    with child:
        child.ask(None, CLIENT_START_S)
        pause(SETTLE_S)
        yield child


def _direct(
    harness: Harness, backend: Child, streams: int, seconds: float, plan: StreamPlan
) -> dict[str, float]:
    with _client(harness, ports_of(backend)[0], streams, plan) as client:
        client.ask("go", CLIENT_START_S)
        load = _Load(backend, client)
        pause(seconds)
        busy_percent = load.busy_percent()
        return {**_figures(client.ask("stop", CLIENT_START_S)), "load": busy_percent}


def _through(
    harness: Harness,
    proxy: Proxy,
    backend: Child,
    streams: int,
    seconds: float,
    plan: StreamPlan,
) -> dict[str, float]:
    tree = proxy.tree
    with _client(harness, proxy.port, streams, plan) as client:
        tree.reset_peak()
        client.ask("go", CLIENT_START_S)
        start = time.monotonic()
        before = tree.usage()
        load = _Load(backend, client)
        pause(seconds)
        busy_percent = load.busy_percent()
        used = tree.usage().since(before)
        took_s = time.monotonic() - start
        descriptors = tree.descriptors()
        memory = tree.peak()
        sample = _figures(client.ask("stop", CLIENT_START_S))
    messages = sample["per_s"] * took_s
    sample["cpu_us"] = used.cpu_us / messages
    sample["switches"] = used.switches / messages
    sample["load"] = busy_percent
    sample["peak_mib"] = memory.total_kib / MIB_KIB
    sample["fds"] = float(descriptors)
    return sample


class _Load:
    """What backend and client use of a core from now on.

    By their CPU clocks: what /proc/stat says of a core is sampled, and misses short bursts.
    """

    def __init__(self, *children: Child) -> None:
        self._trees = [child.tree for child in children]
        self._before_us = self._cpu_us()
        self._start = time.monotonic()

    def _cpu_us(self) -> float:
        return sum(tree.usage().cpu_us for tree in self._trees)

    def busy_percent(self) -> float:
        """100 is a whole core."""
        took_s = time.monotonic() - self._start
        return (self._cpu_us() - self._before_us) / took_s / 1e4


def _figures(answer: str) -> dict[str, float]:
    figures: dict[str, float] = json.loads(answer)
    return figures


SCENARIO = Scenario("grpc-tokens", "gRPC streams, 50 messages/s of 64 bytes each", FIGURES, run)
