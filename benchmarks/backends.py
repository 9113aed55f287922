"""What stands behind the proxies: nghttpd and nginx for requests, our own program for streams."""

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
    """What each stream carries: ``rate`` messages of ``size`` bytes per second.

    ``events`` says that they are server-sent events over HTTP/1.1, else messages of gRPC.
    """

    rate: int = 50
    size: int = 64
    events: bool = False


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


_NGINX = """\
worker_processes 1;
worker_rlimit_nofile 16384;
daemon off;
pid {directory}/pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  open_file_cache max=100;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {files};
  }}
}}
"""


def start_nginx(files: Path, logs: Path, cores: Iterable[int]) -> Child:
    """An HTTP/1.1 server of the files, ready."""
    program = find_program("nginx")
    if program is None:
        raise BenchmarkError("nginx is not installed (Debian: nginx)")
    port = free_port()
    directory = logs / f"web-{port}"
    directory.mkdir()
    directory.chmod(0o777)
    files.chmod(0o755)
    file = directory / "nginx.conf"
    file.write_text(_NGINX.format(directory=directory, port=port, files=files))
    child = Child(
        f"web:{port}",
        (program, "-c", str(file), "-p", str(directory)),
        cores=cores,
        log=directory / "log",
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
            *(["--events"] if plan.events else []),
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
