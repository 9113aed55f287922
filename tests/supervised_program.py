"""A parent whose workers do what their clients say: the program under test in test_supervisor.py.

    python supervised_program.py '{"addresses": ["127.0.0.1:0"], ...}'

A worker serves one connection at a time and one command per line on it; see ``obey``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
from pathlib import Path
from select import POLLIN, poll, select
from types import FrameType, SimpleNamespace
from typing import Any

from gateway.config import Cluster, ClusterEndpoint, Config, Gateway, Listener, Route
from gateway.errors import ConfigError
from gateway.supervisor import parent, run
from gateway.telemetry.counters import Counter
from gateway.telemetry.shared import SharedMemory

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


class Stop(BaseException):
    """SIGTERM in a worker."""


def stop(number: int, frame: FrameType | None) -> None:
    raise Stop


def worker(
    config: Config, sockets: list[socket.socket], shared: SharedMemory, slot: int, ready_fd: int
) -> int:
    terms = OPTIONS.get("terms_ignored", 0)

    def on_term(number: int, frame: FrameType | None) -> None:
        nonlocal terms
        terms -= 1
        if terms < 0:
            raise Stop
        os.write(2, b"SIGTERM ignored\n")

    before_ready(slot)
    try:
        signal.signal(signal.SIGTERM, on_term)
        os.write(ready_fd, b"1")
        os.close(ready_fd)
        while True:
            for sock in select(sockets, [], [])[0]:
                try:
                    connection, _ = sock.accept()
                except BlockingIOError:
                    continue  # a unix socket is shared: another worker was faster
                with connection, connection.makefile("r") as lines:
                    for line in lines:
                        answer = obey(line.split(), sockets, shared, slot)
                        connection.sendall(f"{answer}\n".encode())
    except Stop:
        return int(OPTIONS.get("exit_code", 0))


def before_ready(slot: int) -> None:
    flag = OPTIONS.get("fail_while_exists")
    if OPTIONS.get("fail") == "raise" or (flag and Path(flag).exists()):
        raise ConfigError("certs/edge.pem: no such file")
    if OPTIONS.get("fail") == "bug":
        raise ExceptionGroup("nursery", [ZeroDivisionError("one\ntwo")])
    if OPTIONS.get("fail") == "exit" and slot == 0:
        os._exit(3)
    if OPTIONS.get("fail") == "sys.exit":
        sys.exit("no more memory")
    if OPTIONS.get("fail") == "hang":
        os.write(2, b"hanging\n")
        while True:
            signal.pause()


def obey(
    words: list[str], sockets: list[socket.socket], shared: SharedMemory, slot: int
) -> str | int:
    match words:
        case ["pid"]:
            return os.getpid()
        case ["slot"]:
            return slot
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["leave_heir"]:
            if os.fork() == 0:  # noqa: TID251 - a process that outlives this one, with its pipe
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pause()
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        case ["close_listeners"]:
            for sock in sockets:
                sock.close()
            sockets.clear()
        case ["exit", code]:
            sys.exit(int(code))
        case ["raise", *message]:
            raise ConfigError(" ".join(message))
        case ["print", text]:
            print(text)  # into the buffer of stdout, when that is a pipe
        case ["count"]:
            row = shared.row(slot)
            row.add(Counter.REQUESTS)
            row.add(Counter.EXCHANGES_OPEN)
            row.claim("127.0.0.1:9001").add(1)
        case ["fds"]:
            links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            names = [os.readlink(link) for link in links if os.path.exists(link)]
            return " ".join(sorted(name.partition(":")[0] for name in names))
        case ["signals"]:
            watched = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
            handlers = [signal.getsignal(number) for number in watched]
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            wakeup = signal.set_wakeup_fd(-1)
            return json.dumps([*handlers, len(blocked), wakeup])
    return "done"


class CountedPoll:
    """A poll that says at the end how often the parent woke up."""

    def __init__(self) -> None:
        self.turns = 0
        self._poll = poll()
        self.register, self.unregister = self._poll.register, self._poll.unregister
        atexit.register(lambda: os.write(2, f"{self.turns} turns\n".encode()))

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        self.turns += 1
        return self._poll.poll(timeout_ms)


if __name__ == "__main__":
    if OPTIONS.get("count_turns"):
        setattr(parent, "select", SimpleNamespace(poll=CountedPoll, POLLIN=POLLIN))  # noqa: B010
    parent.KILL_MARGIN_S = OPTIONS.get("kill_margin_s", 60.0)
    parent.HURRY_S = OPTIONS.get("hurry_s", 60.0)
    if "print_first" in OPTIONS:
        print(OPTIONS["print_first"])  # stays in the buffer of stdout, when that is a pipe
    backend = ClusterEndpoint(address="127.0.0.1:9001")
    sys.exit(
        run(
            Config(
                gateway=Gateway(
                    workers=OPTIONS.get("workers", 1),
                    drain_timeout_s=OPTIONS.get("drain_timeout_s", 60.0),
                    restart_backoff_s=OPTIONS.get("restart_backoff_s", 0.01),
                    restart_backoff_max_s=OPTIONS.get("restart_backoff_max_s", 60.0),
                ),
                listeners=tuple(Listener(address=text) for text in OPTIONS["addresses"]),
                routes=(Route(cluster="llama"),),
                clusters={"llama": Cluster(endpoints=(backend, backend), policy="random")},
            ),
            worker_main=worker,
        )
    )
