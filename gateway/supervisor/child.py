"""What a worker process does between the fork and its own program, and after it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from socket import socket
from typing import NoReturn

from gateway.config import Config
from gateway.errors import GatewayError
from gateway.net.sockets import ListeningSockets
from gateway.supervisor.lines import flush_stdio, log
from gateway.supervisor.slot import FAILURE, MAX_REPORT
from gateway.telemetry.shared import SharedMemory

WorkerMain = Callable[[Config, list[socket], SharedMemory, int, int], int]
"""``(config, sockets, shared, slot, ready_fd) -> exit code``: serves until SIGTERM, then drains.

``sockets`` has one listening socket for each of ``config.listeners``, in their order. The worker
writes ``1`` to ``ready_fd`` when it accepts, and may close it then.
"""

PARENT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
"""What the parent handles, and blocks around a fork."""

_PR_SET_PDEATHSIG = 1  # prctl(2)

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork, once for all workers


def become_worker(
    worker_main: WorkerMain,
    config: Config,
    listeners: Sequence[ListeningSockets],
    shared: SharedMemory,
    slot: int,
    *,
    parent_pid: int,
    pipe: int,
    close_fds: Iterable[int],
) -> NoReturn:
    """Run ``worker_main`` in a process that was just forked, and end the process.

    The signals of PARENT_SIGNALS are blocked on entry. ``pipe`` is the writing end of the slot's
    pipe, ``close_fds`` are the parent's own descriptors. Nothing raised here may get back into the
    parent's code, which would take this process for the parent.
    """
    code = 1
    try:
        _leave_parent(parent_pid, close_fds)
        for listener in listeners:
            listener.keep_only(slot)
        sockets = [listener.for_slot(slot) for listener in listeners]
        code = worker_main(config, sockets, shared, slot, os.dup(pipe))
    except SystemExit as exit_:
        code = _exit_code(exit_, pipe)
    except BaseException as error:  # noqa: BLE001 - said, and the process ends with 1
        _report(error, pipe)
    finally:
        # os._exit: no atexit handler or finaliser of the parent may run a second time here.
        flush_stdio()
        os._exit(code if isinstance(code, int) else 1)


def _leave_parent(parent_pid: int, close_fds: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(ignored, signal.SIG_IGN)
    if _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != parent_pid:  # it died before the kernel knew whom to tell
        os._exit(1)
    for fd in close_fds:
        os.close(fd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)


def _exit_code(exit_: SystemExit, pipe: int) -> int:
    """The code of ``sys.exit(code)``; a message given instead of a code is reported."""
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code
    _send(str(exit_.code), pipe)
    return 1


def _report(error: BaseException, pipe: int) -> None:
    _send(name_cause(error), pipe)
    if os.environ.get("GATEWAY_DEBUG") == "1":
        traceback.print_exception(error, file=sys.stderr)


def name_cause(error: BaseException) -> str:
    """One line for an error. Of a group, the first error inside says what happened."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if isinstance(error, GatewayError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _send(line: str, pipe: int) -> None:
    """Tell the parent, or stderr when there is no parent any more."""
    try:
        os.write(pipe, (FAILURE + line.encode(errors="replace"))[:MAX_REPORT])
    except OSError:
        log(line)
