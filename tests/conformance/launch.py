"""Starts ``gateway serve`` for a test, in front of one backend, and reads its counters."""

from __future__ import annotations

import json
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from .peer import Address

ROOT = Path(__file__).resolve().parents[2]
START_PATIENCE_S = 20.0
STOP_PATIENCE_S = 15.0
STATE_PATIENCE_S = 10.0

SERVING = re.compile(r"serving on 127\.0\.0\.1:(\d+)")

CONFIG = """\
[gateway]
workers = 1
drain_timeout = "1s"

[[listeners]]
address = "127.0.0.1:0"

[http2]
{http2}

[[routes]]
match = {{ {match} }}
cluster = "backend"

[clusters.backend]
endpoints = [{{ address = "127.0.0.1:{backend}" }}]
"""


def toml_lines(values: Mapping[str, int | str]) -> str:
    """Keys and values of one table."""
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())


class RunningGateway:
    """A gateway with one worker, serving from its making on; a context manager that ends it."""

    def __init__(
        self,
        directory: Path,
        backend_port: int,
        http2: Mapping[str, int | str] | None = None,
        match: str = "",
    ) -> None:
        file = directory / "gateway.toml"
        file.write_text(
            CONFIG.format(backend=backend_port, http2=toml_lines(http2 or {}), match=match)
        )
        self._stderr: deque[str] = deque(maxlen=100)
        self._snapshots: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "-c", str(file)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()
        self.address = self._wait_for_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it. Raises AssertionError when it complained before: of a worker that died, say."""
        complaints = [line for line in list(self._stderr) if not line.startswith("{")]
        self.stop()
        assert not complaints, "".join(complaints)

    def stop(self) -> int:
        """End it; its exit code. Killed if SIGTERM does not end it in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(STOP_PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def errors(self) -> str:
        """The end of what it has written to stderr."""
        return "".join(self._stderr)

    def state(self) -> dict[str, Any]:
        """The line of JSON that SIGUSR1 asks of the parent: counters by name, workers' pids."""
        self._process.send_signal(signal.SIGUSR1)
        try:
            return self._snapshots.get(timeout=STATE_PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"no counters on stderr:\n{self.errors()}") from None

    def count(self, name: str) -> int:
        """One counter now, summed over the workers."""
        value: int = self.state()[name]
        return value

    def wait_until(self, enough: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Ask for the state until it is as wanted. Raises AssertionError when it never is."""
        deadline = time.monotonic() + STATE_PATIENCE_S
        while not enough(state := self.state()):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}: {state}")

    def worker_memory(self) -> int:
        """Resident bytes of the worker process."""
        (pid,) = self.state()["workers"]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def _wait_for_start(self) -> Address:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_PATIENCE_S)
        line = self._process.stdout.readline() if readable else ""
        found = SERVING.search(line)
        if found is None:
            self.stop()
            raise AssertionError(f"the gateway has not started: {line}{self.errors()}")
        return ("127.0.0.1", int(found[1]))

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._stderr.append(line)
            if line.startswith("{"):
                self._snapshots.put(json.loads(line))
