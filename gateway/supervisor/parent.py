"""The parent's loop: see the table in :mod:`gateway.supervisor`."""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import time
from contextlib import suppress
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from gateway.certificates.prepare import prepare
from gateway.config import Config
from gateway.errors import GatewayError
from gateway.net.sockets import ListeningSockets, close_all, open_listener
from gateway.supervisor.child import PARENT_SIGNALS, WorkerMain, become_worker, name_cause
from gateway.supervisor.lines import announce, build, flush_stdio, log, start_line, state_line
from gateway.supervisor.slot import Backoff, Slot, describe_end
from gateway.telemetry.shared import SharedMemory

if TYPE_CHECKING:  # a gateway without TLS does not load OpenSSL
    from gateway.certificates.contexts import Contexts

KILL_MARGIN_S = 3.0
"""What workers get beyond ``drain_timeout`` to end by themselves before SIGKILL."""

HURRY_S = 3.0
"""What is left to them after a second SIGTERM or SIGINT."""


def run(config: Config, *, worker_main: WorkerMain | None = None) -> int:
    """Serve ``config`` until SIGTERM or SIGINT. Returns the exit code of the process.

    Must be called in the main thread of a process that has no other. ``worker_main`` is what the
    workers run, :func:`gateway.worker.run` by default; it is imported here, before the fork, so
    that the workers share its pages. What fails at the start is said on stderr, in one line.
    """
    with _Signals() as signals:
        listeners: list[ListeningSockets] = []
        shared = None
        tls = None
        try:
            tls = prepare(config)  # before the import of what loads OpenSSL
            if worker_main is None:
                worker_main = _import_worker()
            if tls is not None:
                worker_main = partial(cast("Any", worker_main), tls=tls)
            workers = worker_count(config)
            for listener in config.listeners:
                listeners.append(
                    open_listener(
                        listener.address,
                        slots=workers,
                        backlog=listener.backlog,
                        unix_mode=listener.mode_bits(),
                    )
                )
            slots = sum(cluster.max_endpoints for cluster in config.clusters.values())
            shared = SharedMemory(workers, max(slots, 1))
            parent = _Parent(config, listeners, shared, signals, workers, worker_main, tls)
            return parent.serve()
        except (GatewayError, OSError) as error:
            log(name_cause(error))
            return 1
        finally:
            close_all(listeners)
            if shared is not None:
                shared.close()
            if tls is not None:
                tls.close()


def _import_worker() -> WorkerMain:
    from gateway.worker import run as worker_main

    return worker_main


def worker_count(config: Config) -> int:
    """How many workers; "auto" is one for each core this process may run on."""
    workers = config.gateway.workers
    return len(os.sched_getaffinity(0)) if workers == "auto" else workers


class _Signals:
    """The signals of the parent, as numbers read from a pipe.

    A handler written in Python runs between two bytecodes, wherever the parent is just then; here
    it does nothing, and the number that the interpreter writes to the pipe is handled in the loop.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def fds(self) -> tuple[int, int]:
        return self.fd, self._write_fd

    def __enter__(self) -> _Signals:
        self._old_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _ignore) for number in PARENT_SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self.fd)
        os.close(self._write_fd)

    def read(self) -> bytes:
        """The numbers of the signals that came, each in one byte, in their order."""
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


class _Parent:
    def __init__(
        self,
        config: Config,
        listeners: list[ListeningSockets],
        shared: SharedMemory,
        signals: _Signals,
        workers: int,
        worker_main: WorkerMain,
        tls: Contexts | None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._rotate_at = math.inf if tls is None else time.monotonic()
        self._listeners = listeners
        self._shared = shared
        self._signals = signals
        self._worker_main = worker_main
        self._pid = os.getpid()
        self._build = build()  # before the fork: it imports what the workers share
        settings = config.gateway
        self._slots = [
            Slot(index, Backoff(settings.restart_backoff_s, settings.restart_backoff_max_s))
            for index in range(workers)
        ]
        self._announced = False
        self._stop_requests = 0
        self._kill_at: float | None = None  # set: stopping
        self._exit_code = 0
        self._said: set[str] = set()
        self._poll = select.poll()
        self._poll.register(signals.fd, select.POLLIN)

    def serve(self) -> int:
        """Start the workers and watch them until the last has ended. Returns the exit code."""
        gc.freeze()  # what exists now is never collected: workers don't copy its pages for that
        try:
            for slot in self._slots:
                self._fork(slot)
            while not self._ended():
                self._wait()
        finally:
            self._abandon()
        return self._exit_code

    def _ended(self) -> bool:
        return self._kill_at is not None and not any(slot.pid for slot in self._slots)

    def _wait(self) -> None:
        """One turn: sleep until a signal, a report or a deadline, and handle what there is."""
        pipes = {slot.pipe: slot for slot in self._slots if slot.pipe >= 0}
        for fd, _ in self._poll.poll(self._timeout_ms()):
            if fd in pipes and not pipes[fd].read_report(time.monotonic()):
                self._poll.unregister(fd)  # at its end, and would be ready until SIGCHLD comes
        for number in self._signals.read():
            self._handle(number)
        for slot in self._slots:
            if slot.pid:
                self._check(slot)
        self._announce_once()
        self._handle_deadlines()

    # Time.

    def _timeout_ms(self) -> int | None:
        """Until the next deadline, rounded up so that it has passed then; None without one."""
        deadlines = [slot.restart_at for slot in self._slots if slot.restart_at is not None]
        if self._kill_at is not None:
            deadlines.append(self._kill_at)
        else:
            deadlines.append(self._rotate_at)
        wait_s = min(deadlines, default=math.inf) - time.monotonic()
        if wait_s == math.inf:
            return None
        return min(max(0, math.ceil(wait_s * 1000)), 2**31 - 1)

    def _handle_deadlines(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._kill()
            return
        for slot in self._slots:
            if slot.restart_at is not None and now >= slot.restart_at:
                self._restart(slot)
        if self._tls is not None and now >= self._rotate_at:
            self._rotate_at = self._tls.rotate(now)

    # Life and death of workers.

    def _fork(self, slot: Slot) -> None:
        """Start a process in an empty slot. Raises GatewayError when the kernel refuses."""
        try:
            read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            raise GatewayError(f"can't start worker {slot.index}: {error.strerror}") from error
        try:
            os.set_blocking(read_fd, False)
            flush_stdio()
            # A signal between the fork and the child's own handlers would get lost in the child.
            signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
            pid = os.fork()  # noqa: TID251 - here is the place: no thread, no Trio
            if pid == 0:
                self._be_child(slot, read_fd, write_fd)
        except OSError as error:
            os.close(read_fd)
            raise GatewayError(f"can't start worker {slot.index}: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)
            os.close(write_fd)
        slot.fill(pid, read_fd)
        self._poll.register(read_fd, select.POLLIN)

    def _be_child(self, slot: Slot, read_fd: int, write_fd: int) -> NoReturn:
        pipes = [other.pipe for other in self._slots if other.pipe >= 0]
        become_worker(
            self._worker_main,
            self._config,
            self._listeners,
            self._shared,
            slot.index,
            parent_pid=self._pid,
            pipe=write_fd,
            close_fds=[read_fd, *pipes, *self._signals.fds],
        )

    def _restart(self, slot: Slot) -> None:
        slot.restart_at = None
        try:
            self._fork(slot)
        except GatewayError as error:
            wait_s = slot.backoff.after_death(0.0)
            slot.restart_at = time.monotonic() + wait_s
            log(f"{error}; trying again in {wait_s:g} s")

    def _check(self, slot: Slot) -> None:
        """Bury the process of a slot if it died, and decide what follows."""
        code = slot.reap()
        if code is None:
            return
        now = time.monotonic()
        slot.read_report(now)  # what it wrote last
        pid, failure, ready_at = slot.pid, slot.failure, slot.ready_at
        with suppress(KeyError):
            self._poll.unregister(slot.pipe)
        slot.empty()
        self._shared.clear_row(slot.index)
        end = describe_end(code)
        name = f"worker {slot.index} (pid {pid})"
        if self._kill_at is not None:
            self._died_stopping(name, end, failure, code)
        elif not self._announced and ready_at is None:
            self._exit_code = 1
            self._say_once(failure or f"{name} failed to start: {end}")
            self._stop(KILL_MARGIN_S)
        else:
            wait_s = slot.backoff.after_death(0.0 if ready_at is None else now - ready_at)
            slot.restart_at = now + wait_s
            cause = f": {failure}" if failure else ""
            log(f"{name} {end}{cause}; restarting in {wait_s:g} s")

    def _died_stopping(self, name: str, end: str, failure: str, code: int) -> None:
        """Anything but an exit with 0 counts, save our SIGTERM to one that was not ready for it."""
        if code in (0, -signal.SIGTERM):
            return
        self._exit_code = 1
        if failure:
            self._say_once(failure)
        elif self._kill_at != math.inf:  # else the signal was ours, and said
            log(f"{name} {end}")

    def _announce_once(self) -> None:
        if self._announced or self._kill_at is not None:
            return
        if all(slot.ready_at is not None for slot in self._slots):
            self._announced = True
            announce(
                start_line(self._build, self._config, self._listeners, len(self._slots), self._pid)
            )

    def _say_once(self, line: str) -> None:
        """Several workers mostly fail for one reason."""
        if line not in self._said:
            self._said.add(line)
            log(line)

    # Signals and the end.

    def _handle(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop_requests += 1
            if self._stop_requests == 1 and self._kill_at is None:
                self._drain(signal.Signals(number).name)
            else:
                self._hurry()
        elif number == signal.SIGUSR1:
            self._say_state()
        elif number == signal.SIGHUP:
            log("SIGHUP: reloading is not supported by this version; ignored")

    def _say_state(self) -> None:
        slots = range(self._shared.endpoint_slots)
        in_flight = sum(self._shared.in_flight(slot, 0).total() for slot in slots)
        pids = [slot.pid for slot in self._slots]
        log(state_line(self._shared.snapshot(), in_flight, pids), prefix="")

    def _drain(self, reason: str) -> None:
        drain_s = self._config.gateway.drain_timeout_s
        log(f"{reason}: draining for up to {drain_s:g} s")
        self._stop(drain_s + KILL_MARGIN_S)

    def _stop(self, limit_s: float) -> None:
        """SIGTERM to every worker; SIGKILL to those that are left after ``limit_s``."""
        self._kill_at = time.monotonic() + limit_s
        for slot in self._slots:
            slot.restart_at = None
        self._signal_all(signal.SIGTERM)
        # Our copies keep the queues open: while they are, clients connect and nobody answers.
        close_all(self._listeners)

    def _hurry(self) -> None:
        """Asked again: a short while the second time, none the third."""
        now = time.monotonic()
        limit_s = HURRY_S if self._stop_requests <= 2 else 0.0
        self._kill_at = min(now + limit_s, math.inf if self._kill_at is None else self._kill_at)
        self._signal_all(signal.SIGTERM)

    def _kill(self) -> None:
        alive = [slot for slot in self._slots if slot.pid]
        if not alive:
            return
        self._exit_code = 1
        names = ", ".join(f"{slot.index} (pid {slot.pid})" for slot in alive)
        log(f"killing {'worker' if len(alive) == 1 else 'workers'} {names}: still running")
        self._signal_all(signal.SIGKILL)
        self._kill_at = math.inf  # they die now: nothing is left to wait for but SIGCHLD

    def _signal_all(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.pid:
                # Not reaped yet, so the pid is still this process's, dead or alive.
                os.kill(slot.pid, number)

    def _abandon(self) -> None:
        """On an error of the parent itself: leave no worker behind."""
        self._signal_all(signal.SIGKILL)
        for slot in self._slots:
            if slot.pid:
                os.waitpid(slot.pid, 0)
            slot.empty()
