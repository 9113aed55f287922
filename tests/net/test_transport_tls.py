"""A transport with a TLS session, on a socket pair."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.net.reactor import NEVER
from gateway.net.transport import TRIM_AFTER_S, Transport
from gateway.telemetry import Counter
from gateway.wire.codec import Codec
from tests.rig import Rig
from tests.tls.pair import client, server


class Echo(Codec):
    """Gives back what comes, but for ``end``, which ends the connection, and ``quiet``."""

    def __init__(self, rig: Rig, transport: Transport) -> None:
        self.begin_codec(False, 65_536, rig.reactor.flush_list, transport)
        self.received = b""
        self.told: list[str] = []
        self.transport = transport
        self.half_closed = False

    def receive(self, data: bytes, now: float) -> None:
        self.received += data
        if data == b"end":
            self.transport.close_gracefully()
            return
        if data == b"quiet":
            return
        self.out.extend(data)
        self.touch()

    def lost(self, detail: str) -> None:
        self.told.append(f"lost: {detail}")

    # The peer of the transport, too.

    def closed(self, detail: str) -> None:
        self.told.append(detail)

    def secured(self, now: float) -> None:
        self.told.append("secured")


class Above:
    """What stands above a codec."""

    def __init__(self, codec: Echo) -> None:
        self.closed = codec.closed
        self.secured = codec.secured

    def check(self, now: float) -> float:
        return NEVER


class Joined:
    """A served end and a client's session at the other."""

    def __init__(self, rig: Rig, send_buffer: int = 0) -> None:
        self.rig = rig
        ours, self.other = socket.socketpair()
        if send_buffer:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        ours.setblocking(False)
        self.other.setblocking(False)
        self.transport = Transport(rig.reactor, ours, 60.0, upstream=False)
        self.codec = Echo(rig, self.transport)
        self.session = server().session()
        self.transport.secure(self.session)
        self.transport.start(self.codec, Above(self.codec))
        self.client = client().session("localhost")
        self.wire = b""

    def send(self, octets: bytes = b"") -> None:
        self.other.sendall(octets or self.client.outgoing())
        self.turn()

    def turn(self) -> None:
        self.rig.reactor.turn(0.0)

    def read(self) -> bytes:
        """Plaintext that came; ``wire`` is all that did."""
        plaintext = b""
        while True:
            self.turn()
            try:
                data = self.other.recv(65_536)
            except BlockingIOError:
                return plaintext
            if not data:
                return plaintext
            self.wire += data
            plaintext += self.client.receive(data)

    def shake_hands(self) -> None:
        while not (self.client.established and self.session.established):
            self.send()
            self.read()


@pytest.fixture
def joined(rig: Rig) -> Iterator[Joined]:
    joined = Joined(rig)
    yield joined
    joined.other.close()


def test_both_ways(joined: Joined):
    joined.shake_hands()
    assert joined.codec.told == ["secured"]
    assert joined.transport.secured
    joined.send(joined.client.seal(b"hello"))
    assert joined.read() == b"hello"
    octets = bytes(range(256)) * 2000
    joined.other.setblocking(True)
    sealed = joined.client.seal(octets)
    got = b""
    while sealed or len(got) < len(octets):
        joined.other.setblocking(False)
        if sealed:
            sent = joined.other.send(sealed[:30_000])
            sealed = sealed[sent:]
        got += joined.read()
    assert got == octets


def test_the_last_flight_and_tickets_come_at_once(joined: Joined):
    joined.shake_hands()
    assert joined.client.ticket() is not None
    before = len(joined.wire)
    assert joined.read() == b""
    assert len(joined.wire) == before


def test_the_last_flight_does_not_wait_for_an_answer(joined: Joined):
    joined.send()
    joined.read()
    # The client's Finished and its first octets in one segment.
    finished = joined.client.outgoing()
    joined.other.sendall(finished + joined.client.seal(b"quiet"))
    joined.wire = b""
    joined.read()
    assert joined.codec.received == b"quiet"
    assert joined.wire.startswith(b"\x17\x03\x03")  # the tickets


def test_the_end(joined: Joined):
    joined.shake_hands()
    joined.send(joined.client.seal(b"end"))
    joined.read()
    assert joined.client.peer_closed
    assert joined.transport.open  # it lingers
    joined.other.close()
    joined.turn()
    assert joined.codec.told == ["secured", "lost: closed by the peer", "closed by the peer"]
    assert joined.transport.channel is None


def test_a_clients_goodbye_is_answered(joined: Joined):
    joined.shake_hands()
    joined.send(joined.client.close())
    joined.read()
    assert joined.client.peer_closed
    assert joined.codec.told[-1] == "closed by the peer"


def test_an_end_without_goodbye(joined: Joined):
    joined.shake_hands()
    joined.other.close()
    joined.turn()
    assert joined.codec.told[-1] == "closed by the peer without close_notify"


def test_a_handshake_that_fails_is_told_why(joined: Joined):
    joined.send(b"\x16\x03\x01\x00\x04\x01\x00\x50\x00")
    assert joined.other.recv(100) == b"\x15\x03\x03\x00\x02\x02\x16"
    assert joined.other.recv(100) == b""
    assert joined.rig.count(Counter.TLS_HANDSHAKE_FAILED) == 1
    joined.other.close()
    joined.turn()
    assert not joined.transport.open


def test_a_broken_record_ends_it(joined: Joined):
    joined.shake_hands()
    joined.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert joined.codec.told[-1].startswith("a broken record")
    assert joined.rig.count(Counter.TLS_ERROR) == 1


def test_a_reader_that_stalls_holds_no_more_than_the_mark(rig: Rig):
    joined = Joined(rig, send_buffer=4096)
    joined.shake_hands()
    joined.codec.out.extend(bytes(300_000))
    joined.codec.touch()
    joined.turn()
    # What is sealed waits, and nothing more is sealed meanwhile.
    joined.codec.out.extend(bytes(1000))
    joined.codec.touch()
    joined.turn()
    assert len(joined.codec.out) == 1000
    assert 250_000 < rig.budget.total < 310_000
    assert joined.read() == bytes(301_000)
    assert rig.budget.total == 0
    joined.other.close()


def test_what_is_not_used_is_trimmed(joined: Joined, monkeypatch: pytest.MonkeyPatch):
    joined.shake_hands()
    trimmed: list[Any] = []
    session = joined.session
    monkeypatch.setattr(session, "trim", lambda: trimmed.append(1))
    now = joined.rig.reactor.now
    assert joined.transport.check(now + TRIM_AFTER_S / 2) <= now + TRIM_AFTER_S + 0.1
    assert trimmed == []
    joined.transport.check(now + TRIM_AFTER_S + 0.5)
    joined.transport.check(now + TRIM_AFTER_S + 1.5)
    assert trimmed == [1]


def test_a_reset_midway(joined: Joined):
    joined.send(joined.client.outgoing()[:50])
    joined.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    joined.other.close()
    joined.turn()
    assert not joined.transport.open
