"""The HTTP/2 connection: frames walked, and a whole request served without I/O."""

from __future__ import annotations

from typing import Any

from benchmarks.micro.samples import BROWSER, RESPONSE
from benchmarks.micro.timing import Operation
from benchmarks.streams import frames
from gateway.config import Http2
from gateway.wire.hpack import Encoder
from gateway.wire.http2 import Connection, HeldOctets, StreamOwner

_STATUS_200 = b"\x88"
_FRAMES = 32
_MESSAGE = 69
"""A gRPC message of 64 bytes with its prefix."""

_BODY = b"b" * 1024
_STREAMS = 50


class _Peer(StreamOwner):
    """Handler and owner of everything: consumes DATA and answers requests at once."""

    def __init__(self) -> None:
        self.codec: Any = None
        self.stream: Any = None
        self.answers = False
        self.faults: list[str] = []

    def on_request(self, stream: Any, head: Any) -> None:
        stream.owner = self
        if self.answers:
            self.codec.send_head(stream, RESPONSE, b"", False)
            self.codec.send_data(stream, _BODY, True)

    def on_bad_request(self, stream: Any, kind: str, detail: str) -> None:
        self.faults.append(detail)

    def on_fault(self, code: int, detail: str) -> None:
        self.faults.append(detail)

    def on_goaway(self, code: int, detail: str) -> None:
        self.faults.append(detail)

    def on_ready(self) -> None:
        """The settings came."""

    def on_idle(self) -> None:
        """The last stream went."""

    def count(self, name: str) -> None:
        self.faults.append(name)

    def response_head(self, head: Any, end: bool) -> None:
        """It began."""

    def response_data(self, data: bytes, end: bool) -> None:
        self.codec.consume(self.stream, len(data))

    def response_closed(self, why: int, code: int) -> None:
        self.faults.append(f"closed: {why}")

    def request_closed(self, why: int, code: int) -> None:
        """It ended."""


def _connect(client: bool) -> _Peer:
    peer = _Peer()
    limits = Http2(initial_stream_window=2**30, max_stream_window=2**30)
    peer.codec = Connection(client, limits, peer, HeldOctets(1 << 40), [], peer, 0.0)
    greeting = b"" if client else frames.PREFACE
    greeting += frames.settings(((frames.INITIAL_WINDOW_SIZE, frames.MAX_WINDOW),))
    greeting += frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
    greeting += frames.frame(frames.SETTINGS, frames.ACK, 0)
    peer.codec.receive(greeting, 0.0)
    return peer


def _sent(peer: _Peer) -> None:
    """What the reactor does at the end of a turn. RuntimeError if something went wrong."""
    codec = peer.codec
    codec.out.clear()
    codec.dirty = False
    codec.flushed(0.0)
    if peer.faults:
        raise RuntimeError(f"this measures nothing: {peer.faults[:3]}")


def _walk(count: int) -> None:
    """``count`` DATA frames of a message each, 32 in one read."""
    peer = _connect(client=True)
    peer.stream = peer.codec.open_stream(peer, BROWSER, b"", False, False)
    number = peer.stream.id
    peer.codec.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, number, _STATUS_200), 0.0)
    read = frames.frame(frames.DATA, 0, number, b"m" * _MESSAGE) * _FRAMES
    receive = peer.codec.receive
    for _ in range(max(1, count // _FRAMES)):
        receive(read, 0.0)
        _sent(peer)


def _serve(count: int) -> None:
    """``count`` requests of nine fields, answered with a head and 1 KiB; 50 in one read."""
    peer = _connect(client=False)
    peer.answers = True
    encoder = Encoder()
    flags = frames.END_HEADERS | frames.END_STREAM
    number = 1
    acknowledged = 0
    for _ in range(max(1, count // _STREAMS)):
        requests = []
        for _ in range(_STREAMS):
            requests.append(frames.frame(frames.HEADERS, flags, number, encoder.encode(BROWSER)))
            number += 2
        acknowledged += _STREAMS * len(_BODY)
        if acknowledged > 2**29:
            requests.append(frames.window_update(0, acknowledged))
            acknowledged = 0
        peer.codec.receive(b"".join(requests), 0.0)
        _sent(peer)


def operations() -> dict[str, Operation]:
    """By name."""
    return {
        "DATA frame of 69 bytes, received": _walk,
        "request served, without I/O": _serve,
    }
