"""One socket between the kernel and a codec."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from gateway import config
from gateway.errors import Kind
from gateway.net.transport import LINGER_S, Transport
from gateway.telemetry import FAILURES, Counter
from gateway.wire.http2 import Connection, StreamOwner
from tests.rig import Peer, Rig, request

MARK = 64 * 1024


class Above(StreamOwner):
    """The handler of a server codec and the owner of all its streams: writes down, answers not."""

    def __init__(self, rig: Rig, *, send_buffer: int = 4096, stall_timeout_s: float | None = 60.0):
        rig.limits = config.Http2(max_connection_buffer=MARK, stall_timeout_s=stall_timeout_s)
        self.rig = rig
        self.told: list[Any] = []
        self.streams: list[Any] = []
        self.drained = 0
        self.deadline = float("inf")
        ours, self.other = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        ours.setblocking(False)
        self.ours = ours
        self.transport = Transport(rig.reactor, ours, stall_timeout_s, upstream=False)
        self.codec = Connection(
            False,
            rig.limits,
            self,
            rig.budget,
            rig.reactor.flush_list,
            self.transport,
            rig.reactor.now,
        )
        self.transport.start(self.codec, self)
        self.peer = Peer(rig, self.other, client=True, settings={4: 2**31 - 1})
        self.peer.conn.increment_flow_control_window(2**30)
        self.peer.flush()
        rig.settle()

    def open(self, *, head: bool = True) -> Any:
        """A stream, with a response head or without."""
        self.peer.send(request())
        number = len(self.streams)
        self.rig.until(lambda: len(self.streams) > number)
        stream = self.streams[-1]
        if head:
            self.codec.send_head(stream, ((b":status", b"200"),), (), False)
        self.rig.settle()
        return stream

    def on_request(self, stream: Any, head: object) -> None:
        stream.owner = self
        self.streams.append(stream)

    def on_idle(self) -> None:
        if self.codec.is_finished():
            self.transport.close_gracefully()

    def on_fault(self, code: int, detail: str) -> None:
        self.told.append(("fault", int(code)))
        self.transport.close_gracefully()

    def on_goaway(self, code: int, detail: str) -> None: ...

    def count(self, name: str) -> None:
        self.rig.reactor.count_name(name)

    def response_drained(self, octets: int) -> None:
        self.drained += octets

    def request_closed(self, why: int, code: int) -> None: ...

    def secured(self, now: float) -> None:
        """The TLS handshake is complete."""
        self.told.append("secured")

    def closed(self, detail: str) -> None:
        self.told.append(("closed", detail))

    def check(self, now: float) -> float:
        return self.deadline


@pytest.fixture
def above(rig: Rig) -> Iterator[Above]:
    above = Above(rig)
    yield above
    above.transport.close("the test is over")


def test_octets_are_counted_both_ways(rig: Rig, above: Above) -> None:
    rig.settle()
    received, sent = (
        rig.count(Counter.DOWNSTREAM_BYTES_IN),
        rig.count(Counter.DOWNSTREAM_BYTES_OUT),
    )
    above.peer.raw(b"\0\0\x08\x06\0\0\0\0\0" + b"12345678")  # PING
    rig.until(lambda: above.peer.closed or rig.count(Counter.DOWNSTREAM_BYTES_OUT) > sent)
    assert rig.count(Counter.DOWNSTREAM_BYTES_IN) == received + 17
    assert rig.count(Counter.DOWNSTREAM_BYTES_OUT) == sent + 17
    assert rig.count(Counter.UPSTREAM_BYTES_IN) == rig.count(Counter.UPSTREAM_BYTES_OUT) == 0


def test_octets_of_an_upstream_are_counted_apart(rig: Rig, backend: Any) -> None:
    pool = rig.pool(backend.address)
    pool._dial()
    rig.until(lambda: pool.connections and pool.connections[0].settled)
    rig.settle()
    assert rig.count(Counter.UPSTREAM_BYTES_OUT) > 24
    assert rig.count(Counter.UPSTREAM_BYTES_IN) > 9
    assert rig.count(Counter.DOWNSTREAM_BYTES_OUT) == 0


def test_what_the_socket_does_not_take_is_written_later(rig: Rig, above: Above) -> None:
    stream = above.open()
    above.peer.reading = False
    body = bytes(range(256)) * 2048  # 512 KiB
    above.codec.send_data(stream, body, True)
    rig.settle()
    assert 0 < len(above.codec.out) <= MARK + 16384 + 9
    held = rig.budget.total
    # What waits in the stream and what waits in the out-buffer, each once.
    assert held == len(stream.pending) + len(above.codec.out)
    above.peer.reading = True
    message = above.peer.message(1)
    rig.until(lambda: message.ended)
    assert message.body == body
    assert rig.budget.total == 0
    assert above.codec.out == b""


def test_it_waits_for_room_only_while_something_waits(rig: Rig, above: Above) -> None:
    """EPOLLOUT on a socket that has nothing to write would make every turn a busy one."""
    stream = above.open()
    above.peer.reading = False
    above.codec.send_data(stream, b"x" * 100_000, True)
    rig.settle()
    assert rig.reactor.turn(0.0) == 0
    above.peer.reading = True
    rig.until(lambda: above.peer.message(1).ended)
    rig.settle()
    assert rig.reactor.turn(0.0) == 0


def test_a_peer_that_does_not_read_is_not_read_from(rig: Rig, above: Above) -> None:
    """Answers to what a peer sends pass the mark; at twice the mark it is read no more."""
    ping = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
    streams = [above.open(), above.open(head=False)]
    above.peer.reading = False
    above.codec.send_data(streams[0], b"x" * MARK * 2, False)
    rig.settle()
    for _ in range(40):
        above.codec.send_head(streams[1], ((b":status", b"103"), (b"link", b"x" * 4000)), (), False)
    rig.settle()
    assert len(above.codec.out) > 2 * MARK
    assert rig.count(Counter.OUT_BUFFER_LIMIT) == 1
    received = rig.count(Counter.DOWNSTREAM_BYTES_IN)
    above.peer.raw(ping)
    rig.settle()
    assert rig.count(Counter.DOWNSTREAM_BYTES_IN) == received
    above.peer.reading = True
    rig.until(lambda: rig.count(Counter.DOWNSTREAM_BYTES_IN) == received + len(ping))
    rig.until(lambda: len(above.codec.out) == 0)
    assert rig.count(Counter.OUT_BUFFER_LIMIT) == 1


def test_a_stalled_connection_is_closed(rig: Rig, above: Above) -> None:
    stream = above.open()
    above.peer.reading = False
    above.codec.send_data(stream, b"x" * 40_000, False)
    rig.settle()
    assert above.codec.out
    blocked = rig.reactor.now
    above.transport.check(blocked + 59.0)
    assert above.transport.open
    above.transport.check(blocked + 61.0)
    assert above.told == [("closed", "the peer read nothing for http2.stall_timeout")]
    assert rig.count(Counter.STALLED_CONNECTION) == 1
    assert rig.budget.total == 0


def test_progress_puts_the_stall_off(rig: Rig, above: Above) -> None:
    stream = above.open()
    above.peer.reading = False
    above.codec.send_data(stream, b"x" * 60_000, False)
    rig.settle()
    left = len(above.codec.out)
    first = rig.reactor.now
    above.other.recv(30_000)
    rig.until(lambda: len(above.codec.out) < left)
    rig.settle()
    assert above.codec.out
    above.transport.check(first + 60.0)
    assert above.transport.open
    above.peer.close()
    rig.until(lambda: not above.transport.open)


def test_without_stall_timeout(rig: Rig) -> None:
    above = Above(rig, stall_timeout_s=None)
    stream = above.open()
    above.peer.reading = False
    above.codec.send_data(stream, b"x" * 40_000, False)
    rig.settle()
    assert above.codec.out
    above.transport.check(rig.reactor.now + 1e6)
    assert above.transport.open
    above.transport.close("the test is over")


def test_closed_by_the_peer(rig: Rig, above: Above) -> None:
    above.peer.close()
    rig.until(lambda: not above.transport.open)
    assert above.told == [("closed", "closed by the peer")]
    assert rig.count(Counter.TRANSPORTS_OPEN) == 0
    # Once: whatever comes afterwards.
    above.transport.close("again")
    above.transport.fail("again")
    above.transport.close_gracefully()
    above.transport.flush(rig.reactor.now)
    assert above.transport.check(rig.reactor.now) == float("inf")
    assert len(above.told) == 1
    assert repr(above.transport).startswith("<Transport fd=")


def test_reset_by_the_peer(rig: Rig) -> None:
    above = Above(rig)
    above.transport.close("replaced by a TCP connection")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setblocking(False)
    above.told.clear()
    transport = Transport(rig.reactor, ours, 60.0, upstream=False)
    above.transport = transport
    above.codec = Connection(
        False, rig.limits, above, rig.budget, rig.reactor.flush_list, transport, rig.reactor.now
    )
    transport.start(above.codec, above)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    rig.until(lambda: not transport.open)
    assert above.told == [("closed", "connection lost: Connection reset by peer")]


def test_writing_to_a_peer_that_is_gone(rig: Rig, above: Above) -> None:
    stream = above.open()
    above.peer.reading = False
    above.other.close()
    above.peer.closed = "by us"
    above.codec.send_data(stream, b"x", False)
    above.transport.flush(rig.reactor.now)
    assert above.told == [("closed", "connection lost: Broken pipe")]


def test_a_graceful_close_writes_everything_first(rig: Rig, above: Above) -> None:
    stream = above.open()
    above.peer.reading = False
    body = b"x" * 60_000
    above.codec.send_data(stream, body, True)
    above.transport.close_gracefully()
    above.transport.close_gracefully()
    rig.settle()
    assert above.codec.out
    above.peer.reading = True
    rig.until(lambda: above.peer.closed)
    assert above.peer.message(1).body == body
    rig.until(lambda: not above.transport.open)
    assert above.told == [("closed", "closed by the peer")]


def test_a_graceful_close_lingers_so_that_the_last_frame_arrives(rig: Rig, above: Above) -> None:
    """Octets of the peer that nobody reads would make the kernel reset the connection."""
    above.peer.reading = False
    above.peer.raw(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0")  # WINDOW_UPDATE of 0: a connection error
    rig.until(lambda: above.told)
    assert above.told == [("fault", 1)]
    for _ in range(50):
        above.peer.raw(b"\0\0\x08\x06\0\0\0\0\0" + b"12345678")
        rig.reactor.turn(0.0)
    assert above.transport.open
    above.peer.reading = True
    rig.until(lambda: above.peer.closed)
    assert above.peer.closed == "closed"
    assert above.peer.goaways == [(0, 1)]
    rig.until(lambda: not above.transport.open)


def test_lingering_ends(rig: Rig, above: Above) -> None:
    above.peer.reading = False
    above.transport.close_gracefully()
    rig.settle()
    now = rig.reactor.now
    assert above.transport.check(now) <= now + LINGER_S
    assert above.transport.open
    above.transport.check(now + LINGER_S)
    assert above.told == [("closed", "closed after the last frame")]


def test_deadlines_of_the_peer_and_of_the_codec_are_the_transport_s(rig: Rig, above: Above) -> None:
    now = rig.reactor.now
    above.deadline = now + 3.0
    assert above.transport.check(now) == now + 3.0
    above.deadline = now + 3000.0
    above.peer.raw(b"\0")  # a frame that only begins
    rig.until(lambda: above.codec.deadline < float("inf"))
    assert above.transport.check(rig.reactor.now) == above.codec.deadline < now + 3000.0
    assert rig.reactor.next_at <= above.codec.deadline


def test_a_bug_of_ours_closes_it(
    rig: Rig, above: Above, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_request(stream: object, head: object) -> None:
        raise ZeroDivisionError

    above.on_request = on_request  # type: ignore[method-assign]
    above.peer.send(request())
    rig.until(lambda: not above.transport.open)
    assert above.told == [("closed", "internal error: ZeroDivisionError()")]
    assert rig.count(FAILURES[Kind.INTERNAL]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
