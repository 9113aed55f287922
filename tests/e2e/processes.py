"""Child processes of the tests: the gateway itself, and backends that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

WAIT_S = 30.0
"""The longest wait for anything; it is never reached by a gateway that works."""

GAUGES = ("_open", "in_flight", "pending")
"""A counter with one of these endings is a gauge that must come back to zero."""

Table = Mapping[str, Any]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def to_toml(config: Table) -> str:
    """``config`` as TOML, its top-level tables as inline tables."""
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in config.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        items = (f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value)  # strings, booleans and numbers are written alike


class Lines:
    """The lines that a child writes, read by a thread of its own."""

    def __init__(self, stream: IO[str]) -> None:
        self.seen: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, matches: Callable[[str], bool], start: int = 0) -> str:
        """The first line from index ``start`` on that ``matches``.

        :exc:`EOFError` when the child ends without it, :exc:`TimeoutError` after ``WAIT_S``.
        """

        def found() -> str | None:
            return next((line for line in self.seen[start:] if matches(line)), None)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or found() is not None, WAIT_S)
            line = found()
            if line is None:
                raise (EOFError if self._ended else TimeoutError)("\n".join(self.seen))
            return line

    def join(self) -> list[str]:
        """All lines, when the child has closed its end."""
        self._thread.join(WAIT_S)
        return self.seen

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                with self._changed:
                    self.seen.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def gateway_command() -> list[str]:
    """How the gateway is started; ``GATEWAY_E2E_COMMAND`` names another installation's."""
    if command := os.environ.get("GATEWAY_E2E_COMMAND"):
        return shlex.split(command)
    script = Path(sys.executable).with_name("gateway")
    return [str(script)] if script.exists() else [sys.executable, "-m", "gateway"]


class GatewayProcess:
    """``gateway serve`` with ``config``; ready when the constructor returns.

    ``address`` is its first listener's, ``lines`` what it writes to stdout and stderr.
    """

    def __init__(self, config: Table, directory: Path) -> None:
        self.address: str = config["listeners"][0]["address"]
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port) if port.isdigit() else 0
        self.ending = False
        self.path = directory / "gateway.toml"
        self.path.write_text(to_toml(config))
        self._child = subprocess.Popen(
            [*gateway_command(), "serve", "-c", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._child.stdout is not None
        self.lines = Lines(self._child.stdout)
        try:
            self.start_line = self.lines.wait_for(lambda line: self.address in line)
        except (EOFError, TimeoutError):
            self._child.kill()
            self._child.wait()
            raise

    @property
    def pid(self) -> int:
        """The parent's."""
        return self._child.pid

    def counters(self) -> dict[str, int]:
        """What the parent prints on SIGUSR1: the sums over all workers."""
        return {name: value for name, value in self._state().items() if isinstance(value, int)}

    def worker_pids(self) -> list[int]:
        """The worker processes."""
        pids: list[int] = self._state()["workers"]
        return pids

    def wait_for_counter(self, name: str, value: int) -> None:
        """Return when a counter has this value; TimeoutError if it never has."""
        until = time.monotonic() + WAIT_S
        while (now := self.counters()[name]) != value:
            if time.monotonic() > until:
                raise TimeoutError(f"{name} is {now}, not {value}")

    def _state(self) -> dict[str, Any]:
        start = len(self.lines.seen)
        self._child.send_signal(signal.SIGUSR1)
        line = self.lines.wait_for(lambda line: line.startswith("{"), start)
        state: dict[str, Any] = json.loads(line)
        return state

    def open_gauges(self) -> dict[str, int]:
        """The gauges that are not zero."""
        return {
            name: value
            for name, value in self.counters().items()
            if value and name.endswith(GAUGES)
        }

    def wait_until_idle(self) -> dict[str, int]:
        """Wait for all gauges to be zero; returns those that are not, after many looks."""
        # A look is an answered signal, not an interval; what is still closing gets a short pause.
        for attempt in range(100):
            if not (gauges := self.open_gauges()):
                return {}
            threading.Event().wait(0.02 if attempt < 50 else 0.1)
        return gauges

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send SIGTERM or SIGINT to the parent: from now on it drains."""
        self.ending = True
        self._child.send_signal(number)

    def wait(self) -> int:
        """The exit code, when it has ended."""
        code = self._child.wait(WAIT_S)
        self.lines.join()
        return code

    @property
    def output(self) -> str:
        """What it wrote, without the counters."""
        return "\n".join(line for line in self.lines.seen if not line.startswith("{"))

    @property
    def running(self) -> bool:
        """Whether the parent has not ended."""
        return self._child.poll() is None

    def kill(self) -> None:
        """End it at once, whatever it does; its workers end with it."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
            self._child.wait()
        self.lines.join()


class BackendProcess:
    """``gateway.demo.backend`` as a process of its own, to be killed."""

    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        command: Sequence[str] = (sys.executable, "-m", "gateway.demo.backend", "--name", name)
        self._child = subprocess.Popen(
            [*command, "--stop-with-stdin", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        self._lines = Lines(self._child.stdout)
        line = self._lines.wait_for(lambda line: line.startswith("listening "))
        self.address = line.split()[1]

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """SIGTERM, if it still lives."""
        self._child.terminate()
        self._child.wait(WAIT_S)
        self._lines.join()
        assert self._child.stdin is not None
        self._child.stdin.close()


class ServerProcess:
    """A server of somebody else's, ready when its port is open. ``lines`` is what it writes."""

    def __init__(
        self, argv: Sequence[str], port: int, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=None if env is None else {**os.environ, **env},
        )
        assert self._child.stdout is not None
        self.lines = Lines(self._child.stdout)
        end = time.monotonic() + 3 * WAIT_S
        while not _is_open(port):
            if self._child.poll() is not None or time.monotonic() > end:
                self.stop()
                raise EOFError(f"{argv[0]} did not start:\n" + "\n".join(self.lines.seen))
            time.sleep(0.02)  # noqa: TID251 - another program's port has no event

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        self._child.terminate()
        try:
            self._child.wait(5.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self.lines.join()


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
