"""Starts what a scenario needs, runs its rounds, and keeps the samples."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from benchmarks import backends, load
from benchmarks.cores import Cores, share_cores
from benchmarks.errors import BenchmarkError
from benchmarks.peers import Peer, Plan
from benchmarks.process import Child, Tree, free_port
from benchmarks.spread import Sample, Summary, latencies, summarise_samples
from benchmarks.tls.material import Material, make_material

MIB_KIB = 1024

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How much is measured. ``work`` multiplies the requests and the seconds of each round."""

    peers: Sequence[Peer]
    rounds: int = 5
    work: float = 1.0

    def seconds(self, full: float) -> float:
        """How long a measurement takes that takes ``full`` seconds when ``work`` is 1."""
        return full * self.work

    @property
    def fresh_rounds(self) -> int:
        """Rounds of a measurement that starts its proxies anew each time, which takes long.

        Memory hardly differs from one to the next.
        """
        return max(1, min(self.rounds, 3))


@dataclass(frozen=True)
class Proxy:
    """A peer that runs."""

    peer: Peer
    port: int
    child: Child

    @property
    def name(self) -> str:
        """The peer's."""
        return self.peer.name

    @property
    def tree(self) -> Tree:
        """To measure it by."""
        return self.child.tree


@dataclass
class Results:
    """``cells[case][contender]`` is what its rounds gave; ``failures[case][contender]`` why none.

    A contender is a peer, or what else a scenario compares.
    """

    cells: dict[str, dict[str, dict[str, Summary]]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, case: str, contender: str, samples: Sequence[Sample]) -> None:
        """Keep the samples of one case."""
        self.cells.setdefault(case, {})[contender] = summarise_samples(samples)

    def fail(self, case: str, contender: str, reason: str) -> None:
        """Keep why there are none."""
        self.failures.setdefault(case, {})[contender] = reason

    def median(self, case: str, contender: str, figure: str) -> float | None:
        """None when it was not measured."""
        summary = self.cells.get(case, {}).get(contender, {}).get(figure)
        return None if summary is None else summary.median


class Harness:
    """One run: a directory for all files, and the processes that stand in it.

    A context manager. While it is open this process and its children of load have the load's core.
    """

    def __init__(self, options: Options, progress: Progress | None = None) -> None:
        self.options = options
        self.cores = share_cores(1)
        self._progress = progress
        self._stack = ExitStack()
        self._affinity = os.sched_getaffinity(0)
        self.directory = Path()
        self.files = Path()
        self._material: Material | None = None

    def __enter__(self) -> Harness:
        self.directory = Path(self._stack.enter_context(TemporaryDirectory(prefix="benchmarks-")))
        self.directory.chmod(0o755)  # nginx started by root works as another user
        self.files = self.directory / "files"
        self.files.mkdir()
        backends.write_files(self.files)
        os.sched_setaffinity(0, self.cores.load)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        os.sched_setaffinity(0, self._affinity)

    def say(self, text: str) -> None:
        """Progress, to whoever watches."""
        if self._progress is not None:
            self._progress(text)

    def material(self) -> Material:
        """A certificate for the proxies, made once."""
        if self._material is None:
            directory = self.directory / "tls"
            directory.mkdir()
            self._material = make_material(directory)
        return self._material

    @contextmanager
    def nghttpds(self, count: int = 2) -> Iterator[tuple[int, ...]]:
        """``count`` backends for requests; their ports."""
        with ExitStack() as stack:
            children = [
                stack.enter_context(
                    backends.start_nghttpd(self.files, self.directory, self.cores.load)
                )
                for _ in range(count)
            ]
            yield tuple(port for child in children for port in backends.ports_of(child))

    @contextmanager
    def web_backend(self) -> Iterator[tuple[int, ...]]:
        """An HTTP/1.1 server of the same files; its port."""
        with backends.start_nginx(self.files, self.directory, self.cores.load) as child:
            yield backends.ports_of(child)

    @contextmanager
    def stream_backend(self, plan: backends.StreamPlan) -> Iterator[Child]:
        """The backend for streams."""
        with backends.start_stream_backend(plan, self.directory, self.cores.load) as child:
            yield child

    @contextmanager
    def proxy(
        self,
        peer: Peer,
        ports: tuple[int, ...],
        workers: int = 1,
        http1_in: bool = False,
        http1_out: bool = False,
        tls: Material | None = None,
    ) -> Iterator[Proxy]:
        """``peer`` in front of ``ports``, ready. BenchmarkError if it does not start."""
        port = free_port()
        directory = self.directory / f"{peer.name}-{port}"
        directory.mkdir()
        directory.chmod(0o777)
        launch = peer.launch(Plan(port, ports, workers, directory, http1_in, http1_out, tls))
        child = Child(
            peer.name,
            launch.argv,
            cores=self.proxy_cores(workers).proxy,
            log=directory / "log",
            env=launch.env,
        )
        with child:
            child.wait_for_port(port)
            yield Proxy(peer, port, child)

    def proxy_cores(self, workers: int) -> Cores:
        """Where the proxies run that have ``workers`` workers."""
        return share_cores(workers)

    @contextmanager
    def proxies(
        self,
        results: Results,
        case: str,
        ports: tuple[int, ...],
        peers: Sequence[Peer],
        workers: int = 1,
        http1_in: bool = False,
        http1_out: bool = False,
        tls: Material | None = None,
    ) -> Iterator[list[Proxy]]:
        """Those of ``peers`` that start; the others fail in ``results`` for ``case``."""
        with ExitStack() as stack:
            running = []
            for peer in peers:
                try:
                    proxy = self.proxy(peer, ports, workers, http1_in, http1_out, tls)
                    running.append(stack.enter_context(proxy))
                except BenchmarkError as error:
                    results.fail(case, peer.name, str(error))
            yield running

    def rounds(
        self,
        results: Results,
        case: str,
        contenders: Sequence[Proxy],
        measure: Callable[[Proxy], Sample],
        *,
        warm_up: Callable[[Proxy], Sample] | None = None,
        before_round: Callable[[], None] | None = None,
    ) -> None:
        """All rounds of one case, A B C A B C; a contender that fails takes no further part."""
        samples: dict[str, list[Sample]] = {proxy.name: [] for proxy in contenders}
        failed: set[str] = set()

        def attempt(proxy: Proxy, act: Callable[[Proxy], Sample]) -> Sample | None:
            try:
                return act(proxy)
            except BenchmarkError as error:
                failed.add(proxy.name)
                results.fail(case, proxy.name, str(error))
                return None

        if warm_up is not None:
            for proxy in contenders:
                attempt(proxy, warm_up)
        for number in range(self.options.rounds):
            self.say(f"{case}, round {number + 1}")
            if before_round is not None:
                before_round()
            for proxy in contenders:
                if proxy.name not in failed:
                    sample = attempt(proxy, measure)
                    if sample is not None:
                        samples[proxy.name].append(sample)
        for name, kept in samples.items():
            if kept and name not in failed:
                results.add(case, name, kept)

    def send(self, proxy: Proxy, wanted: load.Load) -> Sample:
        """One run of h2load through ``proxy``, and what it cost."""
        tree = proxy.tree
        tree.reset_peak()
        before = tree.usage()
        result = load.run(wanted, proxy.port, self.directory / "h2load.log")
        used = tree.usage().since(before)
        memory = tree.peak()
        return {
            "rps": result.requests / result.seconds,
            "cpu_us": used.cpu_us / result.requests,
            **latencies(result.latencies_us),
            "peak_mib": memory.total_kib / MIB_KIB,
            "worker_mib": memory.largest_kib / MIB_KIB,
            "fds": float(tree.descriptors()),
            "switches": used.switches / result.requests,
        }

    def request_rounds(
        self, results: Results, case: str, contenders: Sequence[Proxy], wanted: load.Load
    ) -> None:
        """The rounds of a case that is one run of h2load, a fifth of it as warm-up."""
        shape = wanted.shape.scaled(self.options.work)
        full = replace(wanted, shape=shape)
        short = replace(wanted, shape=shape.scaled(0.2))
        self.rounds(
            results,
            case,
            contenders,
            lambda proxy: self.send(proxy, full),
            warm_up=lambda proxy: self.send(proxy, short),
        )


def to_stderr(text: str) -> None:
    """Progress as one line each."""
    print(text, file=sys.stderr, flush=True)
