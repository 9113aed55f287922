"""One connect: it ends with exactly one call, or none when it was cancelled."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.net.addresses import SocketAddress
from gateway.upstream.dial import Dial
from tests.rig import Rig
from tests.upstream.asking import blackhole, closed_port


class Calls:
    """What a dial told, and the dial."""

    def __init__(self, rig: Rig, family: socket.AddressFamily, sockaddr: Any) -> None:
        self.told: list[object] = []
        self.socks: list[socket.socket] = []
        self.dial = Dial(
            rig.reactor, SocketAddress(family, sockaddr), 10.0, self._connected, self._failed
        )

    def _connected(self, sock: socket.socket) -> None:
        self.told.append("connected")
        self.socks.append(sock)

    def _failed(self, detail: str, timeout: bool) -> None:
        self.told.append((detail, timeout))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock


def test_connects(rig: Rig, listener: socket.socket) -> None:
    calls = Calls(rig, socket.AF_INET, listener.getsockname())
    assert calls.dial.pending
    assert calls.told == []
    rig.until(lambda: calls.told)
    assert calls.told == ["connected"]
    assert not calls.dial.pending
    # The socket is the caller's now, ready for it.
    (sock,) = calls.socks
    assert rig.targets() == []
    assert sock.getpeername() == listener.getsockname()
    assert not sock.getblocking()
    assert not sock.get_inheritable()
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    sock.close()


def test_connects_to_a_unix_socket(rig: Rig, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        calls = Calls(rig, socket.AF_UNIX, str(tmp_path / "s"))
        # Connected at once, but told in a turn like every other.
        assert calls.told == []
        rig.until(lambda: calls.told)
        assert calls.told == ["connected"]
        calls.socks[0].close()


def test_refused(rig: Rig) -> None:
    calls = Calls(rig, socket.AF_INET, ("127.0.0.1", closed_port()))
    rig.until(lambda: calls.told)
    rig.settle()
    assert calls.told == [("Connection refused", False)]
    assert rig.targets() == []


def test_a_unix_path_that_is_not_there(rig: Rig, tmp_path: Path) -> None:
    calls = Calls(rig, socket.AF_UNIX, str(tmp_path / "absent"))
    # Known at once: told before the constructor returns.
    assert calls.told == [("No such file or directory", False)]
    assert not calls.dial.pending
    assert rig.targets() == []


def test_the_time_is_over(rig: Rig) -> None:
    with blackhole() as address:
        calls = Calls(rig, socket.AF_INET, ("127.0.0.1", int(address.partition(":")[2])))
        started = rig.reactor.now
        assert rig.reactor.next_at == started + 10.0
        assert calls.dial.check(started + 9.9) == started + 10.0
        assert calls.told == []
        assert calls.dial.check(started + 10.0) == float("inf")
        assert calls.told == [("no connection within 10 s", True)]
        assert calls.dial.check(started + 20.0) == float("inf")
        assert len(calls.told) == 1
    assert rig.targets() == []


def test_cancelled(rig: Rig, listener: socket.socket) -> None:
    calls = Calls(rig, socket.AF_INET, listener.getsockname())
    calls.dial.cancel()
    calls.dial.cancel()
    rig.settle()
    assert calls.told == []
    assert rig.targets() == []


def test_a_bug_in_what_is_done_with_the_connection(
    rig: Rig, listener: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reactor calls fail() then; the dial itself is over and tells nothing more."""
    told: list[str] = []

    def connected(sock: socket.socket) -> None:
        sock.close()
        raise RuntimeError("a bug")

    Dial(
        rig.reactor,
        SocketAddress(socket.AF_INET, listener.getsockname()),
        10.0,
        connected,
        lambda detail, timeout: told.append(detail),
    )
    rig.until(lambda: not rig.targets())
    rig.settle()
    assert told == []
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_fail_gives_up(rig: Rig) -> None:
    with blackhole() as address:
        calls = Calls(rig, socket.AF_INET, ("127.0.0.1", int(address.partition(":")[2])))
        calls.dial.fail("internal error")
        calls.dial.fail("again")
    assert calls.told == [("internal error", False)]
