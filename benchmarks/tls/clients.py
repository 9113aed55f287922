"""Starts what the scenarios of TLS need beside proxies and backends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Harness
from benchmarks.process import ROOT, Child, free_port
from benchmarks.tls.material import GROUP, Material
from benchmarks.tls.worker import Answer, Job

START_S = 20.0
LONGEST_S = 120.0
"""The longest that one job may take."""


_CONFIGURATION = f"""\
openssl_conf = clients
[clients]
ssl_conf = modules
[modules]
system_default = defaults
[defaults]
Groups = {GROUP}:P-256
"""
# pyOpenSSL has no call for the groups, and OpenSSL would offer a key of ML-KEM besides. P-256 is
# the certificate's, which TLS 1.2 wants to see there; no key of it is sent.


class Clients:
    """``count`` processes of :mod:`benchmarks.tls.worker` on the load's core; a context manager."""

    def __init__(self, harness: Harness, material: Material, count: int = 1) -> None:
        self._stack = ExitStack()
        self._children: list[Child] = []
        configuration = harness.directory / "clients.cnf"
        configuration.write_text(_CONFIGURATION)
        with ExitStack() as stack:
            for number in range(count):
                child = Child(
                    f"client {number}",
                    (sys.executable, "-m", "benchmarks.tls.worker", str(material.ca_file)),
                    cores=harness.cores.load,
                    log=harness.directory / f"tls-client-{number}.log",
                    env={"PYTHONPATH": str(ROOT), "OPENSSL_CONF": str(configuration)},
                    talks=True,
                )
                self._children.append(stack.enter_context(child))
            for child in self._children:
                child.ask(None, START_S)
            self._stack = stack.pop_all()

    def __len__(self) -> int:
        return len(self._children)

    def do(self, job: Job) -> list[float]:
        """Let the first one do ``job``. BenchmarkError if it goes wrong."""
        return self.do_each([job])

    def do_each(self, jobs: Sequence[Job]) -> list[float]:
        """One job for each client, all at once; the times of all."""
        children = self._children[: len(jobs)]
        for child, job in zip(children, jobs, strict=True):
            _tell(child, msgspec.json.encode(job).decode())
        answers = [
            msgspec.json.decode(child.ask(None, LONGEST_S), type=Answer) for child in children
        ]
        for answer in answers:
            if answer.error:
                raise BenchmarkError(answer.error)
        return [time_us for answer in answers for time_us in answer.times_us]

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _tell(child: Child, line: str) -> None:
    stdin = child.popen.stdin
    if stdin is None:
        raise ValueError(f"{child.name} was started without pipes")
    try:
        stdin.write(f"{line}\n")
        stdin.flush()
    except BrokenPipeError as error:
        raise BenchmarkError(f"{child.name} has ended: {child.output()}") from error


@contextmanager
def responder(harness: Harness, material: Material) -> Iterator[int]:
    """The OCSP responder, ready; its port."""
    port = free_port()
    argv = (sys.executable, "-m", "benchmarks.tls.lookup", str(port), str(material.staple))
    with _program(harness, "responder", argv) as child:
        child.wait_for_port(port)
        yield port


@contextmanager
def relays(harness: Harness, targets: Sequence[int], rtt_s: float) -> Iterator[dict[int, int]]:
    """A port for each of ``targets`` that is ``rtt_s`` away from it; the same one if that is 0."""
    if not rtt_s:
        yield {target: target for target in targets}
        return
    ports = {}
    with ExitStack() as stack:
        for target in targets:
            one_way_ms = rtt_s * 1e3 / 2
            argv = (sys.executable, "-m", "benchmarks.tls.relay", str(target), str(one_way_ms))
            child = stack.enter_context(_program(harness, f"relay-{target}", argv, talks=True))
            ports[target] = int(child.ask(None, START_S))
        yield ports


def _program(harness: Harness, name: str, argv: Sequence[str], *, talks: bool = False) -> Child:
    return Child(
        name,
        argv,
        cores=harness.cores.load,
        log=harness.directory / f"{name}.log",
        env={"PYTHONPATH": str(ROOT)},
        talks=talks,
    )
