"""The parent process, with workers that do as they are told (supervised_program.py)."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from gateway import supervisor
from gateway.config import Config, Gateway
from gateway.supervisor.parent import worker_count
from gateway.supervisor.slot import Backoff, Slot, describe_end

PROGRAM = Path(__file__).parent / "supervised_program.py"
INSTALLED_IN = str(Path(supervisor.__file__).parents[2])  # the gateway that is tested here
INHERITED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
LONG_S = 30  # a test that waits so long has failed


class Client:
    """One connection to a worker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LONG_S)
        self._lines = self.socket.makefile("r")

    def send(self, command: str) -> None:
        self.socket.sendall(f"{command}\n".encode())

    def answer(self) -> str:
        return self._lines.readline().strip()

    def ask(self, command: str) -> str:
        self.send(command)
        return self.answer()

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


class Program:
    """A running parent. What it did not write before its end is the empty string."""

    def __init__(self, options: dict[str, Any], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps({"addresses": ["127.0.0.1:0"], **options})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**INHERITED, "PYTHONPATH": INSTALLED_IN, **env},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._stdout: IO[bytes] = self.process.stdout
        self._stderr: IO[bytes] = self.process.stderr
        self.port = 0
        self.clients: list[Client] = []

    def start_line(self) -> str:
        line = _line(self._stdout)
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        self.port = int(found[1]) if found else 0
        return line

    def log_line(self) -> str:
        return _line(self._stderr)

    def connect(self) -> Client:
        self.clients.append(Client(self.port))
        return self.clients[-1]

    def ask(self, command: str) -> str:
        """One command on a connection of its own."""
        client = self.connect()
        answer = client.ask(command)
        client.close()
        return answer

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what was left to read on stdout and stderr."""
        for client in self.clients:
            client.close()
        stdout, stderr = self.process.communicate(timeout=LONG_S)
        return self.process.returncode, stdout.decode(), stderr.decode()

    def state(self) -> dict[str, Any]:
        self.signal(signal.SIGUSR1)
        state: dict[str, Any] = json.loads(self.log_line())
        return state


def _line(stream: IO[bytes]) -> str:
    """The next line, read byte by byte so that nothing waits in a buffer that select can't see."""
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([stream], [], [], LONG_S)[0], f"no line came, only {line!r}"
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode().rstrip("\n")


Start = Callable[..., Program]


@pytest.fixture
def launch() -> Iterator[Start]:
    """Starts a parent; what is left of it after the test is killed."""
    programs: list[Program] = []

    def launch_one(*, env: dict[str, str] | None = None, **options: object) -> Program:
        programs.append(Program(options, env or {}))
        return programs[-1]

    yield launch_one
    for program in programs:
        for client in program.clients:
            client.close()
        with suppress(ProcessLookupError):
            os.killpg(program.process.pid, signal.SIGKILL)  # workers that ignore SIGTERM too
        program.process.communicate()


@pytest.fixture
def start(launch: Start) -> Start:
    """Starts a parent and waits until it serves."""

    def start_one(**options: object) -> Program:
        program = launch(**options)
        assert program.start_line()
        return program

    return start_one


# Start


def test_one_line_says_what_is_served(launch: Start, tmp_path: Path) -> None:
    program = launch(workers=2, addresses=["127.0.0.1:0", f"unix:{tmp_path}/s"])
    line = program.start_line()
    assert re.fullmatch(
        r"gateway \S+ \((compiled|interpreted)\) serving on "
        rf"127\.0\.0\.1:{program.port}, unix:{tmp_path}/s; clusters llama\(random, 2 endpoints\); "
        rf"2 workers; pid {program.process.pid}",
        line,
    )
    assert program.port > 0
    program.signal(signal.SIGTERM)
    assert program.end()[1] == "", "and that is all it says on stdout"


def test_what_was_printed_before_the_fork_is_printed_once(launch: Start) -> None:
    code, stdout, _ = launch(workers=3, print_first="before", fail="raise").end()
    assert (code, stdout) == (1, "before\n")


def test_every_worker_serves_its_own_socket(start: Start) -> None:
    program = start(workers=2)
    seen: dict[str, str] = {}
    for _ in range(200):  # the kernel hashes the client's port: 2**-200 to miss one
        client = program.connect()
        seen[client.ask("slot")] = client.ask("pid")
        client.close()
        if len(seen) == 2:
            break
    assert sorted(seen) == ["0", "1"]
    assert [str(pid) for pid in program.state()["workers"]] == [seen["0"], seen["1"]]


def test_workers_of_a_unix_socket(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    program = start(workers=2, addresses=["127.0.0.1:0", f"unix:{path}"])
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LONG_S)
        client.connect(path)
        client.sendall(b"pid\n")
        assert int(client.recv(100)) in program.state()["workers"]
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 0, stderr
    assert not os.path.exists(path)


def test_a_worker_holds_nothing_of_its_parent_or_siblings(start: Start) -> None:
    """Its listener and this connection; stdout, stderr and the pipe to its parent."""
    program = start(workers=3)
    fds = program.ask("fds").split()
    assert fds.count("socket") == 2
    assert fds.count("pipe") == 3


def test_a_worker_starts_with_fresh_signals(start: Start) -> None:
    ignored, default = int(signal.SIG_IGN), int(signal.SIG_DFL)
    answer = json.loads(start().ask("signals"))
    assert answer == [ignored, ignored, ignored, default, 0, -1]


def test_workers_that_all_fail_at_the_start_say_so_once(launch: Start) -> None:
    code, stdout, stderr = launch(workers=3, fail="raise").end()
    assert (code, stdout) == (1, "")
    assert stderr == "gateway: certs/edge.pem: no such file\n"


def test_one_worker_that_fails_at_the_start_ends_the_others(launch: Start) -> None:
    code, stdout, stderr = launch(workers=2, fail="exit").end()
    assert (code, stdout) == (1, "")
    assert re.fullmatch(
        r"gateway: worker 0 \(pid \d+\) failed to start: exited with code 3\n", stderr
    )


def test_a_bug_is_one_line_with_the_cause(launch: Start) -> None:
    code, _, stderr = launch(fail="bug").end()
    assert (code, stderr) == (1, "gateway: ZeroDivisionError: one two\n")


def test_a_bug_has_a_traceback_when_debugging(launch: Start) -> None:
    code, _, stderr = launch(fail="bug", env={"GATEWAY_DEBUG": "1"}).end()
    assert code == 1
    assert "in before_ready" in stderr
    assert "gateway: ZeroDivisionError: one two\n" in stderr


def test_a_message_of_sys_exit_is_said(launch: Start) -> None:
    code, _, stderr = launch(fail="sys.exit").end()
    assert (code, stderr) == (1, "gateway: no more memory\n")


def test_a_port_in_use_ends_the_start(launch: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, stdout, stderr = launch(addresses=[address], workers=2).end()
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"gateway: can't listen on {address}: address in use")
    assert stderr.count("\n") == 1


def test_a_second_listener_that_fails_closes_the_first(launch: Start, tmp_path: Path) -> None:
    path = tmp_path / "s"
    code, _, stderr = launch(addresses=[f"unix:{path}", "unix:/nonexistent/s"]).end()
    assert code == 1
    assert "unix:/nonexistent/s: no such directory" in stderr
    assert not path.exists()


def test_a_stop_before_the_start_is_done(launch: Start) -> None:
    program = launch(workers=2, fail="hang")
    assert [program.log_line() for _ in range(2)] == ["hanging", "hanging"]
    program.signal(signal.SIGTERM)
    code, stdout, _ = program.end()
    assert (code, stdout) == (0, "")


def test_auto_is_one_worker_per_available_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5})
    config = Config(listeners=(), routes=(), clusters={})
    assert worker_count(config) == 3
    config = Config(listeners=(), routes=(), clusters={}, gateway=Gateway(workers=7))
    assert worker_count(config) == 7


# Death of a worker


def test_a_queued_connection_survives_its_worker(start: Start) -> None:
    """The worker serves one connection at a time: the second is in the queue when it dies."""
    program = start()
    first, second = program.connect(), program.connect()
    old = first.ask("pid")
    second.send("pid")
    first.send("die")
    new = second.answer()
    assert new
    assert new != old


def test_a_connection_made_while_there_is_no_worker_waits(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    program = start(fail_while_exists=str(flag), restart_backoff_max_s=0.04)
    client = program.connect()
    old = client.ask("pid")
    flag.touch()
    client.send("die")
    assert program.log_line() == (
        f"gateway: worker 0 (pid {old}) killed by SIGKILL; restarting in 0.01 s"
    )
    waiting = program.connect()
    waiting.send("pid")
    assert "no such file; restarting" in program.log_line()
    flag.unlink()
    assert waiting.answer() not in ("", old)


def test_the_cause_of_a_death_is_in_its_line(start: Start) -> None:
    program = start(restart_backoff_s=0.01)
    pid = program.ask("pid")
    program.connect().send("raise out of luck")
    assert program.log_line() == (
        f"gateway: worker 0 (pid {pid}) exited with code 1: out of luck; restarting in 0.01 s"
    )
    pid = program.ask("pid")
    program.connect().send("exit 0")
    assert program.log_line() == (
        f"gateway: worker 0 (pid {pid}) exited with code 0; restarting in 0.02 s"
    )
    assert program.ask("pid") not in ("", pid)


def test_a_worker_flushes_what_it_printed(start: Start) -> None:
    program = start()
    client = program.connect()
    client.ask("print last_words")
    client.send("exit 0")
    program.log_line()
    program.signal(signal.SIGTERM)
    assert program.end()[1] == "last_words\n"


def test_other_workers_do_not_notice(start: Start) -> None:
    program = start(workers=2, restart_backoff_s=1000.0, restart_backoff_max_s=1000.0)
    survivor = program.connect()
    slot = survivor.ask("slot")
    pid = survivor.ask("pid")
    os.kill(program.state()["workers"][1 - int(slot)], signal.SIGSEGV)
    assert "killed by SIGSEGV" in program.log_line()
    assert survivor.ask("pid") == pid


def test_a_restart_that_fails_waits_longer_and_ends_nothing(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    program = start(restart_backoff_s=0.01, restart_backoff_max_s=0.04, fail_while_exists=str(flag))
    flag.touch()
    program.connect().send("die")
    waits = [program.log_line().rpartition(" in ")[2] for _ in range(5)]
    assert waits[1:] == ["0.02 s", "0.04 s", "0.04 s", "0.04 s"]
    flag.unlink()
    assert program.ask("pid")


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [backoff.after_death(0.0) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_long_life_starts_the_waits_again() -> None:
    backoff = Backoff(0.1, 0.5)
    for _ in range(3):
        backoff.after_death(0.49)
    assert backoff.after_death(0.5) == 0.1
    assert backoff.after_death(0.0) == 0.2


def test_the_first_wait_is_never_above_the_longest() -> None:
    assert Backoff(3.0, 1.0).after_death(0.0) == 1.0


def test_what_a_dead_worker_had_open_is_forgotten(start: Start) -> None:
    program = start(restart_backoff_s=1000.0, restart_backoff_max_s=1000.0)
    client = program.connect()
    client.ask("count")
    client.ask("count")
    state = program.state()
    assert (state["in_flight"], state["exchanges_open"], state["requests"]) == (2, 2, 2)
    client.send("die")
    program.log_line()
    state = program.state()
    assert (state["in_flight"], state["exchanges_open"], state["requests"]) == (0, 0, 2)


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exited with code 0"), (-11, "killed by SIGSEGV"), (-40, "killed by signal 40")],
)
def test_ends_in_words(code: int, text: str) -> None:
    assert describe_end(code) == text


# A worker's pipe


@pytest.mark.parametrize("pieces", [[b"1!a b\n"], [b"1", b"!a b"], [b"1!", b"a", b" b"]])
def test_a_report_in_pieces(pieces: list[bytes]) -> None:
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
    slot = Slot(0, Backoff(1.0, 1.0))
    slot.fill(1234, read_fd)
    for piece in pieces:
        os.write(write_fd, piece)
        assert slot.read_report(7.0)
    os.close(write_fd)
    assert not slot.read_report(8.0)
    assert (slot.ready_at, slot.failure) == (7.0, "a b")
    slot.empty()
    assert (slot.pid, slot.pipe, slot.ready_at) == (0, -1, None)


def test_a_worker_that_failed_before_it_was_ready() -> None:
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
    slot = Slot(0, Backoff(1.0, 1.0))
    slot.fill(1234, read_fd)
    os.write(write_fd, b"!1 is not a key")
    os.close(write_fd)
    slot.read_report(7.0)
    assert (slot.ready_at, slot.failure) == (None, "1 is not a key")
    slot.empty()


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_passed_on_and_ends_with_zero(start: Start, number: signal.Signals) -> None:
    program = start(workers=2)
    open_connection = program.connect()
    assert open_connection.ask("pid")
    program.signal(number)
    code, _, stderr = program.end()
    assert code == 0
    assert stderr == f"gateway: {number.name}: draining for up to 60 s\n"


def test_a_stop_closes_the_port_at_once(start: Start) -> None:
    """The worker goes on with what it has, its own listener closed; nobody else is let in."""
    program = start(terms_ignored=1)
    client = program.connect()
    pid = client.ask("pid")
    program.signal(signal.SIGTERM)
    assert [program.log_line() for _ in range(2)] == [
        "gateway: SIGTERM: draining for up to 60 s",
        "SIGTERM ignored",
    ]
    program.state()  # the parent has done its part
    assert client.ask("close_listeners") == "done"
    with pytest.raises(ConnectionRefusedError):
        program.connect()
    assert client.ask("pid") == pid
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 0, stderr


def test_a_stop_while_there_is_no_worker(start: Start) -> None:
    program = start(restart_backoff_s=1000.0, restart_backoff_max_s=1000.0)
    program.connect().send("die")
    program.log_line()
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 0, stderr


def test_a_worker_that_does_not_end_is_killed(start: Start) -> None:
    program = start(terms_ignored=9, drain_timeout_s=0.05, kill_margin_s=0.05)
    pid = program.ask("pid")
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 1
    assert f"gateway: killing worker 0 (pid {pid}): still running\n" in stderr


def test_a_second_stop_ends_a_drain(start: Start) -> None:
    program = start(terms_ignored=1, drain_timeout_s=1000.0)
    program.signal(signal.SIGINT)
    assert "draining" in program.log_line()
    assert program.log_line() == "SIGTERM ignored"
    program.signal(signal.SIGINT)
    code, _, stderr = program.end()
    assert (code, stderr) == (0, "")


def test_a_second_stop_kills_who_does_not_listen(start: Start) -> None:
    program = start(terms_ignored=9, drain_timeout_s=1000.0, hurry_s=0.05)
    program.signal(signal.SIGTERM)
    program.log_line()
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 1
    assert "still running" in stderr


def test_a_third_stop_does_not_wait(start: Start) -> None:
    program = start(terms_ignored=9, drain_timeout_s=1000.0, hurry_s=1000.0)
    program.signal(signal.SIGTERM)
    assert "draining" in program.log_line()
    assert program.log_line() == "SIGTERM ignored"  # signals merge while they wait: one by one
    program.signal(signal.SIGTERM)
    assert program.log_line() == "SIGTERM ignored"
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 1
    assert "still running" in stderr


def test_a_worker_that_fails_while_it_drains_counts(start: Start) -> None:
    program = start(exit_code=4)
    program.signal(signal.SIGTERM)
    code, _, stderr = program.end()
    assert code == 1
    assert re.search(r"worker 0 \(pid \d+\) exited with code 4\n", stderr)


def test_workers_end_when_their_parent_is_killed(start: Start) -> None:
    program = start()
    client = program.connect()
    pid = int(client.ask("pid"))
    fd = os.pidfd_open(pid)
    try:
        program.signal(signal.SIGKILL)
        assert select.select([fd], [], [], LONG_S)[0], "the worker goes on without its parent"
    finally:
        os.close(fd)
    assert client.answer() == ""


# Other signals


def test_sighup_is_said_to_be_ignored(start: Start) -> None:
    program = start()
    pid = program.ask("pid")
    program.signal(signal.SIGHUP)
    assert program.log_line() == (
        "gateway: SIGHUP: reloading is not supported by this version; ignored"
    )
    assert program.ask("pid") == pid


def test_workers_ignore_what_a_terminal_sends_to_all(start: Start) -> None:
    program = start()
    client = program.connect()
    pid = client.ask("pid")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        os.kill(int(pid), number)
    assert client.ask("pid") == pid


def test_sigusr1_is_one_line_of_json(start: Start) -> None:
    program = start(workers=2)
    state = program.state()
    assert state["in_flight"] == 0
    assert len(set(state["workers"])) == 2
    assert all(isinstance(count, int) for name, count in state.items() if name != "workers")


@pytest.mark.parametrize("command", ["die", "leave_heir"])
def test_the_parent_sleeps_while_nothing_happens(start: Start, command: str) -> None:
    """The pipe of a dead worker is at its end, or held by others: it must not wake the parent."""
    program = start(count_turns=True, restart_backoff_s=0.3)
    program.connect().send(command)
    program.log_line()
    assert program.ask("pid")
    program.signal(signal.SIGTERM)
    assert "draining" in program.log_line()
    turns, _, unit = program.log_line().partition(" ")  # no end(): the heir has stderr open
    assert unit == "turns"
    assert int(turns) < 30
