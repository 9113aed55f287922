"""Child processes: started on their core, measured as a tree, stopped for certain."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.errors import BenchmarkError

START_S = 20.0
"""How long a process may take to accept connections."""

STOP_S = 5.0
"""How long a process may take to end after SIGTERM, before SIGKILL."""

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_HOST = "127.0.0.1"


def find_program(name: str) -> str | None:
    """The path of ``name``, in the places of servers too, which PATH often lacks."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((_HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def pause(seconds: float) -> None:
    """Let ``seconds`` pass. For measurements, which have no event to wait for."""
    select.select((), (), (), seconds)


@dataclass(frozen=True)
class Usage:
    """What a process tree has used so far, or between two moments (see :meth:`since`)."""

    cpu_us: float
    switches: int

    def since(self, before: Usage) -> Usage:
        """The difference."""
        return Usage(self.cpu_us - before.cpu_us, self.switches - before.switches)


@dataclass(frozen=True)
class Memory:
    """Resident memory of a tree, in KiB. ``largest_kib`` is that of its largest process."""

    total_kib: int
    largest_kib: int


class Tree:
    """A process and its descendants, looked up anew at each reading.

    Readings leave out what the kernel does not let us see (a process of another user).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def members(self) -> list[int]:
        """The process identifiers, the root first."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                fields = _stat(int(entry))
                if fields:
                    children.setdefault(int(fields[1]), []).append(int(entry))
        found = [self.pid]
        for pid in found:  # grows while it is walked
            found.extend(children.get(pid, ()))
        return found

    def usage(self) -> Usage:
        """CPU time (user and system) and context switches since the processes began."""
        cpu_us = 0.0
        switches = 0
        for pid in self.members():
            cpu_us += _cpu_us(pid)
            switches += sum(_switches(task) for task in _tasks(pid))
        return Usage(cpu_us, switches)

    def reset_peak(self) -> None:
        """Let :meth:`peak` count from now on."""
        for pid in self.members():
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:
                continue

    def peak(self) -> Memory:
        """The largest resident memory since :meth:`reset_peak` (or since the start)."""
        return self._memory("VmHWM")

    def resident(self) -> Memory:
        """The resident memory now."""
        return self._memory("VmRSS")

    def descriptors(self) -> int:
        """Open file descriptors."""
        count = 0
        for pid in self.members():
            try:
                count += len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
        return count

    def _memory(self, key: str) -> Memory:
        sizes = [_status(Path(f"/proc/{pid}/status"), key) for pid in self.members()]
        return Memory(sum(sizes), max(sizes))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (state); empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the second field is a name that may hold blanks


def _cpu_us(pid: int) -> float:
    """Of one process with all its threads, and of its children that have ended."""
    fields = _stat(pid)
    if not fields:
        return 0.0
    ended_s = (int(fields[13]) + int(fields[14])) * _TICK_S
    try:
        # The kernel's number for the CPU clock of another process: clock_getcpuclockid(3).
        own_s = time.clock_gettime((~pid << 3) | 2)
    except OSError:
        own_s = (int(fields[11]) + int(fields[12])) * _TICK_S
    return (own_s + ended_s) * 1e6


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _switches(task: Path) -> int:
    return _status(task / "status", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")


def _status(path: Path, *keys: str) -> int:
    """The sum of the numbers behind ``keys``; 0 when the process is gone."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    total = 0
    for line in lines:
        key, _, value = line.partition(":")
        if key in keys:
            total += int(value.split()[0])
    return total


class Child:
    """A process that is started on ``cores``, in a session of its own, and ended by :meth:`stop`.

    Its output goes to a file beside ``log``; :attr:`tree` measures it. With ``talks`` its stdin and
    stdout are pipes for whoever started it.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cores: Iterable[int],
        log: Path,
        env: Mapping[str, str] | None = None,
        talks: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        pinned = set(cores)
        with log.open("wb") as file:
            try:
                self.popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if talks else file,
                    stderr=file,
                    cwd=log.parent,
                    env=None if env is None else {**os.environ, **env},
                    text=True,
                    start_new_session=True,
                    # This program has one thread: nothing can be locked in the child.
                    preexec_fn=lambda: os.sched_setaffinity(0, pinned),
                )
            except OSError as error:
                raise BenchmarkError(f"{name} could not be started: {error}") from error
        self.tree = Tree(self.popen.pid)

    def wait_for_port(self, port: int) -> None:
        """Until it accepts connections. BenchmarkError if it ends or takes too long."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.popen.poll() is not None:
                raise BenchmarkError(f"{self.name} ended while starting: {self.output()}")
            with socket.socket() as sock:
                if sock.connect_ex((_HOST, port)) == 0:
                    return
            pause(0.02)
        raise BenchmarkError(f"{self.name} does not accept on port {port}: {self.output()}")

    def ask(self, line: str | None, timeout_s: float) -> str:
        """Write ``line`` (if any) and read the line that answers it; for a child that talks."""
        stdin, stdout = self.popen.stdin, self.popen.stdout
        if stdin is None or stdout is None:
            raise ValueError(f"{self.name} was started without pipes")
        try:
            if line is not None:
                stdin.write(f"{line}\n")
                stdin.flush()
            ready, _, _ = select.select((stdout,), (), (), timeout_s)
            answer = stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise BenchmarkError(f"{self.name} does not answer: {self.output()}")
        return answer.rstrip("\n")

    def output(self) -> str:
        """The end of what it wrote, for messages."""
        try:
            return self.log.read_text(errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to what is left of its session."""
        if self.popen.poll() is None:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
