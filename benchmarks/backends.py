"""What stands behind the proxies: nghttpd for requests, our own program for streams."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.process import ROOT, Child, find_program, free_port

KIB = 1024
MIB = 1024 * KIB

SIZES = {"1k": KIB, "10k": 10 * KIB, "100k": 100 * KIB, "1m": MIB, "64m": 64 * MIB}
"""Files that nghttpd serves, by their path without the slash."""

GRPC_PATH = "/benchmark.Echo/Unary.grpc"
"""A gRPC method that answers with one message of 64 bytes and ``grpc-status: 0``.

The suffix is for nghttpd, which takes the content type from it.
"""

GRPC_MESSAGE = b"\0" + (64).to_bytes(4, "big") + b"m" * 64


@dataclass(frozen=True)
class StreamPlan:
    """What each stream carries: ``rate`` messages of ``size`` bytes per second."""

    rate: int = 50
    size: int = 64


def write_files(directory: Path) -> None:
    """What :class:`Nghttpd` serves, and what requests post."""
    for name, size in SIZES.items():
        with (directory / name).open("wb") as file:
            file.truncate(size)
    method = directory / GRPC_PATH.lstrip("/")
    method.parent.mkdir(exist_ok=True)
    method.write_bytes(GRPC_MESSAGE)
    (directory / "message").write_bytes(GRPC_MESSAGE)
    (directory / "mime.types").write_text("application/grpc grpc\n")


def start_nghttpd(files: Path, logs: Path, cores: Iterable[int]) -> Child:
    """One nghttpd, ready. ``port`` is in its name: see :func:`port_of`.

    Receive windows of 1 MiB for a stream and 4 MiB for a connection, so that uploads measure the
    proxy and not the 64 KiB that nghttpd gives. More streams than anyone opens, as most gRPC
    servers allow: Envoy and HAProxy fail requests that go over a limit before they know it.
    """
    program = find_program("nghttpd")
    if program is None:
        raise BenchmarkError("nghttpd is not installed (Debian: nghttp2-server)")
    port = free_port()
    child = Child(
        f"nghttpd:{port}",
        (
            program,
            "--no-tls",
            "--address=127.0.0.1",
            "--max-concurrent-streams=10000",
            "--window-bits=20",
            "--connection-window-bits=22",
            f"--htdocs={files}",
            f"--mime-types-file={files / 'mime.types'}",
            "--trailer=grpc-status: 0",
            str(port),
        ),
        cores=cores,
        log=logs / f"nghttpd-{port}.log",
    )
    return _ready(child, port)


def start_stream_backend(plan: StreamPlan, logs: Path, cores: Iterable[int]) -> Child:
    """One process that streams on two ports: :func:`ports_of`."""
    ports = (free_port(), free_port())
    child = Child(
        f"streams:{ports[0]},{ports[1]}",
        (
            sys.executable,
            "-m",
            "benchmarks.streams.backend",
            f"--rate={plan.rate}",
            f"--size={plan.size}",
            *map(str, ports),
        ),
        cores=cores,
        log=logs / f"streams-{ports[0]}.log",
        env={"PYTHONPATH": str(ROOT)},
    )
    return _ready(child, *ports)


def ports_of(child: Child) -> tuple[int, ...]:
    """The ports of a backend."""
    return tuple(map(int, child.name.partition(":")[2].split(",")))


def _ready(child: Child, *ports: int) -> Child:
    try:
        for port in ports:
            child.wait_for_port(port)
    except BenchmarkError:
        child.stop()
        raise
    return child
