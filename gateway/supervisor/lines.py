"""What the parent says: one line at its start, and one of JSON when it is asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from gateway import _build
from gateway.config import Cluster, Config
from gateway.net.sockets import ListeningSockets


def log(text: str, *, prefix: str = "gateway: ") -> None:
    """One line on stderr. A stderr that is gone stops nobody."""
    _write(f"{prefix}{text}\n", sys.stderr)


def announce(line: str) -> None:
    """One line on stdout."""
    _write(f"{line}\n", sys.stdout)


def flush_stdio() -> None:
    """Empty the buffers of stdout and stderr: a fork would copy what is in them."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # nobody reads it any more, it is closed, or there was none from the start


def build() -> str:
    """Version, and compiled or not: ``0.1.0 (compiled)``. Imports what is compiled."""
    return f"{_build.version()} ({_build.describe()})"


def start_line(
    build: str, config: Config, listeners: Sequence[ListeningSockets], workers: int, pid: int
) -> str:
    """What it is (``build``, see :func:`build`), where it listens, and what is behind it."""
    where = ", ".join(str(listener.address) for listener in listeners)
    clusters = ", ".join(_cluster(name, cluster) for name, cluster in config.clusters.items())
    return (
        f"gateway {build} serving on {where}; clusters {clusters}; "
        f"{_count(workers, 'worker')}; pid {pid}"
    )


def state_line(counts: Mapping[str, int], in_flight: int, pids: Sequence[int]) -> str:
    """The counters of all workers together, as one line of JSON; the pid of an empty slot is 0."""
    return json.dumps({"in_flight": in_flight, "workers": list(pids), **counts})


def _cluster(name: str, cluster: Cluster) -> str:
    return f"{name}({cluster.policy}, {_count(len(cluster.endpoints), 'endpoint')})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _write(line: str, stream: TextIO) -> None:
    """Past the stream's buffer, where an unwritten line would come up again at the exit."""
    flush_stdio()
    data = line.encode(errors="replace")
    try:
        fd = stream.fileno()
        while data:
            data = data[os.write(fd, data) :]
    except (OSError, ValueError, AttributeError):
        pass
