"""A reader that stalls holds back its sender, in HTTP/1.1 too, and what waits is bounded."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gateway import config
from gateway.config import parse_address
from gateway.net.addresses import Peers
from gateway.net.networks import Networks
from gateway.net.transport import Transport
from gateway.proxy.opening import Entry, Opening
from tests.rig import Rig

BODY = 8 * 1024 * 1024
BUFFER = 64 * 1024
# Held for one direction: what is read ahead, one read more, and an out-buffer above its mark.
MOST = BUFFER + 65_536 + 2 * 65_536


class Ends:
    """A client and a backend, both raw sockets with small buffers, and the gateway between them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.http1 = config.Http1(max_body_buffer=BUFFER)
        rig.limits = config.Http2(max_connection_buffer=BUFFER)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        port = self._listening.getsockname()[1]
        cluster = rig.cluster(f"127.0.0.1:{port}", protocol="http1")
        assert parse_address(f"127.0.0.1:{port}")
        site = rig.site(cluster)
        ours, self.client = socket.socketpair()
        for sock in (ours, self.client):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            sock.setblocking(False)
        transport = Transport(rig.reactor, ours, None, upstream=False)
        entry = Entry(None, Networks(()), Networks(()))
        Opening(site, transport, entry, "", Peers(), lambda: None)
        self.backend: socket.socket | None = None
        self.heard = {"client": b"", "backend": b""}

    def turn(self) -> None:
        self.rig.reactor.turn(0.001)
        if self.backend is None:
            self._listening.setblocking(False)
            try:
                self.backend, _ = self._listening.accept()
            except BlockingIOError:
                return
            self.backend.setblocking(False)
            self.backend.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)

    def read(self, name: str) -> int:
        sock = self.client if name == "client" else self.backend
        try:
            data = sock.recv(65_536) if sock is not None else b""
        except BlockingIOError:
            return 0
        self.heard[name] += data
        return len(data)

    def send(self, name: str, data: bytes) -> int:
        sock = self.client if name == "client" else self.backend
        assert sock is not None
        try:
            return sock.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.client.close()
        self._listening.close()
        if self.backend is not None:
            self.backend.close()


@pytest.fixture
def ends(rig: Rig) -> Iterator[Ends]:
    ends = Ends(rig)
    yield ends
    ends.close()


def held(ends: Ends) -> int:
    """Octets in the out-buffers and streams of both transports."""
    total = 0
    for target in ends.rig.targets():
        codec = getattr(target, "codec", None)
        if codec is not None:
            total += len(codec.out)
            for stream in codec.streams.values():
                total += len(stream.pending or b"")
    return total


def pour(ends: Ends, sender: str, receiver: str, body: bytes) -> None:
    """Send until nothing moves any more, then let the receiver read; in between what is held."""
    sent = idle = 0
    while idle < 50:
        moved = ends.send(sender, body[sent : sent + 65_536]) if sent < len(body) else 0
        sent += moved
        idle = 0 if moved else idle + 1
        ends.turn()
        assert held(ends) <= MOST
    assert sent < len(body), "nobody held the sender back"
    while sent < len(body) or len(ends.heard[receiver].partition(b"\r\n\r\n")[2]) < len(body):
        sent += ends.send(sender, body[sent : sent + 65_536]) if sent < len(body) else 0
        ends.turn()
        ends.read(receiver)
        assert held(ends) <= MOST
    assert ends.heard[receiver].partition(b"\r\n\r\n")[2] == body


def wait_for(ends: Ends, name: str, octets: bytes) -> None:
    while octets not in ends.heard[name]:
        ends.turn()
        ends.read(name)


def test_a_response(ends: Ends) -> None:
    ends.send("client", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_for(ends, "backend", b"\r\n\r\n")
    ends.send("backend", b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % BODY)
    pour(ends, "backend", "client", bytes(range(256)) * (BODY // 256))


def test_a_request(ends: Ends) -> None:
    ends.send("client", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % BODY)
    wait_for(ends, "backend", b"\r\n\r\n")
    pour(ends, "client", "backend", bytes(range(256)) * (BODY // 256))
    ends.send("backend", b"HTTP/1.1 204 No Content\r\n\r\n")
    wait_for(ends, "client", b"204")


def test_a_pipelined_flood_waits_in_the_socket(ends: Ends) -> None:
    """Requests behind one that is not answered are not read further than one read brought."""
    flood = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n" * 100_000
    sent = ends.send("client", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_for(ends, "backend", b"\r\n\r\n")
    sent = idle = 0
    while idle < 50:
        moved = ends.send("client", flood[sent : sent + 65_536])
        sent += moved
        idle = 0 if moved else idle + 1
        ends.turn()
    assert sent < 300_000
    assert ends.heard["backend"].count(b"GET ") == 1
