"""Accepting: limits, and what happens when descriptors run out."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway
from gateway.net.listener import ACCEPTS_PER_TURN, Acceptor
from gateway.telemetry import Counter
from tests.rig import Rig


class Accepting:
    """An acceptor, and what it accepted."""

    def __init__(self, rig: Rig, sock: socket.socket, limit: int = 100) -> None:
        self.rig = rig
        self.got: list[tuple[socket.socket, str]] = []
        self.address = sock.getsockname()
        self.family = sock.family
        self.acceptor = Acceptor(
            rig.reactor, sock, limit, lambda sock, client: self.got.append((sock, client))
        )
        self.clients: list[socket.socket] = []

    def connect(self, number: int = 1) -> None:
        for _ in range(number):
            client = socket.socket(self.family)
            self.clients.append(client)
            client.connect(self.address)

    def release(self) -> None:
        """The oldest connection ends."""
        self.got.pop(0)[0].close()
        self.acceptor.released()

    def close(self) -> None:
        while self.got:
            self.release()
        for client in self.clients:
            client.close()
        self.acceptor.close()


def listening(family: socket.AddressFamily, address: object) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        sock.close()
        pytest.skip(f"no {family.name} here: {error}")
    sock.listen(256)
    return sock


@pytest.fixture
def accepting(rig: Rig) -> Iterator[Accepting]:
    accepting = Accepting(rig, listening(socket.AF_INET, ("127.0.0.1", 0)))
    yield accepting
    accepting.close()


def test_accepts(rig: Rig, accepting: Accepting) -> None:
    accepting.connect(2)
    rig.until(lambda: len(accepting.got) == 2)
    assert [client for _, client in accepting.got] == ["127.0.0.1", "127.0.0.1"]
    assert not any(sock.getblocking() for sock, _ in accepting.got)
    assert accepting.acceptor.open_connections == 2
    assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_ACCEPTED) == 2
    assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_OPEN) == 2
    accepting.release()
    assert accepting.acceptor.open_connections == 1
    assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_OPEN) == 1


def test_accepts_on_v6(rig: Rig) -> None:
    accepting = Accepting(rig, listening(socket.AF_INET6, ("::1", 0)))
    accepting.connect()
    rig.until(lambda: accepting.got)
    assert accepting.got[0][1] == "::1"
    accepting.close()


def test_accepts_on_unix_sockets(rig: Rig, tmp_path: Path) -> None:
    accepting = Accepting(rig, listening(socket.AF_UNIX, str(tmp_path / "s")))
    accepting.connect()
    rig.until(lambda: accepting.got)
    assert accepting.got[0][1] == ""
    accepting.close()


def test_a_burst_takes_several_turns(rig: Rig, accepting: Accepting) -> None:
    accepting.connect(ACCEPTS_PER_TURN + 5)
    rig.reactor.turn(1.0)
    assert len(accepting.got) == ACCEPTS_PER_TURN
    rig.reactor.turn(1.0)
    assert len(accepting.got) == ACCEPTS_PER_TURN + 5


def test_above_the_limit_connections_are_closed_at_once(rig: Rig) -> None:
    accepting = Accepting(rig, listening(socket.AF_INET, ("127.0.0.1", 0)), limit=2)
    accepting.connect(4)
    rig.until(lambda: rig.count(Counter.DOWNSTREAM_CONNECTIONS_REFUSED) == 2)
    assert len(accepting.got) == 2
    for client in accepting.clients:
        client.settimeout(10)
    assert [client.recv(1) for client in accepting.clients[2:]] == [b"", b""]
    accepting.release()
    accepting.connect()
    rig.until(lambda: len(accepting.got) == 2)
    assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_REFUSED) == 2
    assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_ACCEPTED) == 3
    accepting.close()


def test_after_close_nothing_is_accepted(rig: Rig, accepting: Accepting) -> None:
    accepting.acceptor.close()
    accepting.acceptor.close()
    assert rig.targets() == []
    with pytest.raises(ConnectionRefusedError):
        accepting.connect()


EXHAUSTED = """
import os, resource, socket, sys
from gateway.net.listener import PAUSE_S, Acceptor
from gateway.telemetry import Counter
from tests.rig import Rig

rig = Rig()
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
got = []
acceptor = Acceptor(rig.reactor, listener, 100, lambda sock, client: got.append(sock))
clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
served, other = socket.socketpair()

class Served:
    told = []
    def ready(self, events, now): self.told.append(served.recv(1))
    def check(self, now): return float("inf")
    def fail(self, detail): raise SystemExit(detail)

rig.reactor.register(served.fileno(), Served(), 1)
spare = os.open("/dev/null", os.O_RDONLY)
os.close(spare)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))

rig.reactor.turn(1.0)
assert got == []
assert rig.count(Counter.ACCEPT_ERRORS) == 1, rig.count(Counter.ACCEPT_ERRORS)
# Paused: a socket that stays ready does not make the reactor spin.
assert rig.reactor.turn(0.0) == 0
assert rig.reactor.next_at <= rig.reactor.now + PAUSE_S
# What is served goes on.
other.send(b"x")
assert rig.reactor.turn(1.0) == 1 and Served.told == [b"x"]
# Nothing is free yet when the pause is over: paused again.
rig.sweep(PAUSE_S)
rig.reactor.turn(1.0)
assert got == [] and rig.count(Counter.ACCEPT_ERRORS) == 2
assert rig.reactor.turn(0.0) == 0
# Descriptors are there again.
resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 10, hard))
rig.sweep(PAUSE_S)
rig.reactor.turn(1.0)
assert len(got) == 3, got
assert rig.count(Counter.DOWNSTREAM_CONNECTIONS_ACCEPTED) == 3
print("recovered")
"""


def test_descriptors_run_out() -> None:
    """EMFILE pauses accepting; what is served goes on; accepting goes on when there are some."""
    package = Path(gateway.__file__).parent.parent
    tests = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": f"{package}:{tests}"},
    )
    assert (done.stdout, done.returncode) == ("recovered\n", 0), done.stderr
