"""The relay: what comes out of it, and when."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.process import ROOT, Child

ONE_WAY_S = 0.03


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's socket, the relay between them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = listener.getsockname()[1]
        argv = (sys.executable, "-m", "benchmarks.tls.relay", str(target), str(ONE_WAY_S * 1e3))
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with Child(
            "relay",
            argv,
            cores=os.sched_getaffinity(0),
            log=tmp_path / "log",
            env=env,
            talks=True,
        ) as child:
            port = int(child.ask(None, 20))
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                server, _ = listener.accept()
                server.settimeout(20)
                with server:
                    yield client, server


def receive(sock: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        data = sock.recv(65_536)
        assert data, "closed early"
        received += data
    return received


def test_each_direction_is_delayed(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    for sender, receiver in ((client, server), (server, client)):
        began_s = time.monotonic()
        sender.sendall(b"ping")
        assert receive(receiver, 4) == b"ping"
        assert time.monotonic() - began_s >= ONE_WAY_S


def test_what_follows_does_not_wait_for_what_went_before(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = ends
    began_s = time.monotonic()
    for number in range(10):
        client.sendall(bytes([number]))
    assert receive(server, 10) == bytes(range(10))
    assert time.monotonic() - began_s < 10 * ONE_WAY_S


def test_many_octets_keep_their_order(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    sent = b"".join(number.to_bytes(4, "big") for number in range(50_000))
    client.sendall(sent)
    assert receive(server, len(sent)) == sent


def test_an_end_comes_after_the_octets_and_leaves_the_other_way_open(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = ends
    client.sendall(b"request")
    client.shutdown(socket.SHUT_WR)
    assert receive(server, 7) == b"request"
    assert server.recv(1) == b""
    server.sendall(b"response")
    server.close()
    assert receive(client, 8) == b"response"
    assert client.recv(1) == b""
