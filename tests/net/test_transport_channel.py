"""A transport with a channel: what is said at the end of a session, and when."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gateway.net.transport import Transport
from gateway.wire.codec import READING, WATCHING, Codec
from tests.rig import Rig

BODY = b"x" * 500_000


class Clear:
    """A channel that changes nothing, and says ``bye``."""

    early_octets = 0
    peer_closed = False
    alpn = None

    def __init__(self) -> None:
        self.established = True
        self.writable = True
        self.waiting = b""

    def receive(self, ciphertext: bytes | memoryview) -> bytes:
        return bytes(ciphertext)

    def seal(self, plaintext: bytes | bytearray) -> bytes:
        return bytes(plaintext) + self.outgoing()

    def outgoing(self) -> bytes:
        octets, self.waiting = self.waiting, b""
        return octets

    def close(self) -> bytes:
        return b"bye"

    def trim(self) -> None: ...


class Plain(Codec):
    def __init__(self, rig: Rig) -> None:
        self.received = b""
        self._rig = rig

    def begin(self, transport: Transport) -> None:
        self.begin_codec(False, 65_536, self._rig.reactor.flush_list, transport)

    def receive(self, data: bytes, now: float) -> None:
        self.received += data

    def lost(self, detail: str) -> None: ...


class Above:
    def __init__(self) -> None:
        self.ended = ""
        self.secured_at = -1.0

    def closed(self, detail: str) -> None:
        self.ended = detail

    def check(self, now: float) -> float:
        return float("inf")

    def secured(self, now: float) -> None:
        self.secured_at = now


class Ends:
    """A transport with a channel, and the socket of its peer."""

    def __init__(self, rig: Rig) -> None:
        ours, self.other = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        self.other.setblocking(False)
        self.rig = rig
        self.channel = Clear()
        self.codec = Plain(rig)
        self.above = Above()
        self.transport = Transport(rig.reactor, ours, 60.0, upstream=False)
        self.codec.begin(self.transport)
        self.transport.secure(self.channel)
        self.transport.start(self.codec, self.above)
        self.got = b""

    def shake_hands(self) -> None:
        self.other.sendall(b"hello")
        self.rig.until(lambda: self.above.secured_at >= 0)

    def read(self) -> bool:
        """Read what is there; whether the stream has ended."""
        try:
            data = self.other.recv(65536)
        except BlockingIOError:
            return False
        self.got += data
        return not data


@pytest.fixture
def ends(rig: Rig) -> Any:
    ends = Ends(rig)
    yield ends
    ends.transport.close("the test is over")
    ends.other.close()


def test_what_the_handshake_says_last_is_sent_without_plaintext(rig: Rig, ends: Ends) -> None:
    ends.channel.waiting = b"finished"
    ends.shake_hands()
    rig.settle()
    ends.read()
    assert ends.got == b"finished"


def test_the_goodbye_comes_after_what_the_socket_did_not_take(rig: Rig, ends: Ends) -> None:
    ends.shake_hands()
    ends.codec.out.extend(BODY)
    ends.codec.touch()
    rig.settle()
    ends.transport.close_gracefully()
    rig.until(ends.read)
    assert ends.got == BODY + b"bye"


def test_the_goodbye_waits_for_the_end_of_the_handshake(rig: Rig, ends: Ends) -> None:
    """An answer to early data may end the connection before the client's Finished is here."""
    ends.channel.established = False
    ends.other.sendall(b"early")
    rig.until(lambda: ends.codec.received)
    ends.codec.out.extend(b"answer")
    ends.codec.touch()
    ends.transport.close_gracefully()
    rig.until(lambda: ends.read() or ends.got == b"answer")
    rig.settle()
    assert not ends.read()
    ends.channel.established = True
    ends.shake_hands()
    rig.until(ends.read)
    assert ends.got == b"answerbye"


@pytest.mark.skipif(hasattr(Codec, "__pyx_vtable__"), reason="compiled: paused is the codec's own")
@pytest.mark.parametrize("paused", [WATCHING, 1])
def test_a_handshake_goes_on_while_the_codec_takes_nothing(
    rig: Rig, ends: Ends, paused: int
) -> None:
    ends.channel.established = False
    ends.other.sendall(b"early")
    rig.until(lambda: ends.codec.received)
    ends.codec.paused = paused
    ends.codec.touch()
    rig.settle()
    ends.channel.established = True
    ends.shake_hands()
    # From here on it is as the codec says.
    rig.settle()
    before = ends.codec.received
    ends.other.sendall(b"more")
    rig.settle()
    assert ends.codec.received == before
    ends.codec.paused = READING
    ends.codec.touch()
    rig.until(lambda: ends.codec.received == before + b"more")


def test_what_goes_before_the_session_does_not_keep_it_back(rig: Rig) -> None:
    """A PROXY protocol header, then the ClientHello."""
    ours, other = socket.socketpair()
    ours.setblocking(False)
    with other:
        channel = Clear()
        channel.established = channel.writable = False
        channel.waiting = b"hello"
        codec = Plain(rig)
        transport = Transport(rig.reactor, ours, 60.0, upstream=True)
        codec.begin(transport)
        transport.secure(channel, b"before ")
        transport.start(codec, Above())
        codec.touch()
        rig.settle()
        assert other.recv(100) == b"before hello"
        transport.close("the test is over")
