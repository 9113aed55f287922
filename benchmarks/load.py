"""Requests by h2load, and what it says of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.process import find_program

TIMEOUT_S = 120.0
"""The longest that one run of h2load may take."""


@dataclass(frozen=True)
class Shape:
    """``requests`` in all, over ``connections`` with ``streams`` at a time on each."""

    connections: int
    streams: int
    requests: int

    @property
    def label(self) -> str:
        """``10x10``: connections x streams."""
        return f"{self.connections}x{self.streams}"

    def scaled(self, factor: float) -> Shape:
        """With ``factor`` times the requests, at least one for each place."""
        least = self.connections * self.streams
        return Shape(self.connections, self.streams, max(least, round(self.requests * factor)))


@dataclass(frozen=True)
class Load:
    """A shape and what is asked for. ``body`` is a file to POST; without it the request is GET.

    With ``tls`` it is TLS 1.3 with X25519, and AES-128 for everybody: left to themselves, some
    proxies choose AES-256.
    """

    shape: Shape
    path: str
    body: Path | None = None
    headers: Sequence[str] = ()
    http1: bool = False
    tls: bool = False


@dataclass(frozen=True)
class LoadResult:
    """``latencies_us`` is in the order in which the responses ended."""

    requests: int
    seconds: float
    latencies_us: Sequence[int]


@dataclass(frozen=True)
class H2loadOutput:
    """What h2load prints. ``failed`` includes responses other than 2xx and 3xx."""

    seconds: float
    total: int
    succeeded: int
    failed: int


def parse_output(text: str) -> H2loadOutput:
    """Of the whole standard output. ValueError if a line is missing."""
    seconds: float | None = None
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("finished in "):
            seconds = parse_duration_s(line.split()[2].rstrip(","))
        elif line.startswith("requests: "):
            for part in line.removeprefix("requests: ").split(", "):
                number, name = part.split()
                counts[name] = int(number)
    if seconds is None or not counts:
        raise ValueError(f"not the output of h2load: {text[-500:]!r}")
    return H2loadOutput(seconds, counts["total"], counts["succeeded"], counts["failed"])


def parse_protocols(text: str) -> dict[str, str]:
    """What h2load says of the first connection: ``TLS Protocol``, ``Application protocol``..."""
    names = ("TLS Protocol", "Cipher", "Server Temp Key", "Application protocol")
    found = (line.partition(": ") for line in text.splitlines())
    return {name: value.strip() for name, _, value in found if name in names}


def parse_duration_s(text: str) -> float:
    """``12.94ms``, ``44us``, ``1.06s`` or ``2m`` in seconds. ValueError for anything else."""
    for unit, seconds in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * seconds
    raise ValueError(f"not a duration: {text!r}")


def parse_log(text: str) -> list[int]:
    """The latencies (microseconds) of the file that ``--log-file`` writes."""
    return [int(line.split("\t")[2]) for line in text.splitlines() if line]


def run(load: Load, port: int, log: Path) -> LoadResult:
    """Send ``load`` to 127.0.0.1:``port`` from this process's cores.

    BenchmarkError unless every response was a success.
    """
    program = find_program("h2load")
    if program is None:
        raise BenchmarkError("h2load is not installed (Debian: nghttp2-client)")
    shape = load.shape
    argv = [program, f"-n{shape.requests}", f"-c{shape.connections}", f"-m{shape.streams}"]
    if load.body is not None:
        argv += ["-d", str(load.body)]
    if load.http1:
        argv.append("--h1")
    if load.tls:
        argv += ["--tls13-ciphers=TLS_AES_128_GCM_SHA256", "--groups=X25519"]
    for header in load.headers:
        argv += ["-H", header]
    log.unlink(missing_ok=True)  # h2load appends
    scheme = "https" if load.tls else "http"
    argv += ["--log-file", str(log), f"{scheme}://127.0.0.1:{port}{load.path}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        output = parse_output(done.stdout)
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"h2load: {error.stdout[-500:]}{error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"h2load took more than {TIMEOUT_S} s for {load}") from error
    if output.failed or output.succeeded != shape.requests:
        raise BenchmarkError(f"{output.failed} of {output.total} requests failed: {load}")
    if load.tls:
        _check_tls(parse_protocols(done.stdout), "http/1.1" if load.http1 else "h2")
    return LoadResult(output.succeeded, output.seconds, parse_log(log.read_text()))


def _check_tls(said: dict[str, str], protocol: str) -> None:
    """Whether the proxies have what they are compared with."""
    key = said.get("Server Temp Key", "")
    if said.get("TLS Protocol") != "TLSv1.3" or not key.startswith("X25519"):
        raise BenchmarkError(f"not TLS 1.3 with X25519: {said}")
    if said.get("Application protocol") != protocol:
        raise BenchmarkError(f"ALPN did not choose {protocol}: {said}")
