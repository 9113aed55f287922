"""The server: every stream gets ``--rate`` messages per second for as long as it lives.

Time is a wheel whose round is the time between two messages, in slots of a quarter of a
millisecond. A stream that opens is put into a slot at random, so the streams are out of step with
each other as those of a model server are, and its messages go out whenever the wheel comes by. All
messages of one slot on one connection are written together.

A message for which there is no window is left out and counted; the count goes to stderr at the
end.
"""

from __future__ import annotations

import argparse
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any

from benchmarks.streams import frames
from benchmarks.streams.events import EventSender, EventStream

SLOT_S = 0.000_25

_CHUNK = 65_536
_HEAD = frames.fields((("content-type", "application/grpc"),))
_STATUS_200 = b"\x88"  # RFC 7541 appendix A, index 8


class Stream:
    """``header`` is what stands before each of its messages."""

    __slots__ = ("connection", "header", "open", "window")

    def __init__(self, connection: Connection, number: int, size: int) -> None:
        self.connection = connection
        self.header = frames.frame_header(size, frames.DATA, 0, number)
        self.window = connection.initial_window
        self.open = True


class Connection:
    """One proxy's connection."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.size = frames.PREFIX_BYTES + size
        self._prefix = b"\0" + size.to_bytes(4, "big")
        self._padding = b"t" * (size - frames.STAMP.size)
        self.reader = frames.FrameReader()
        self.preface = len(frames.PREFACE)
        self.initial_window = frames.DEFAULT_WINDOW
        self.window = frames.DEFAULT_WINDOW
        self.streams: dict[int, Stream] = {}
        self.out = bytearray(
            frames.settings(((frames.INITIAL_WINDOW_SIZE, 2**20),)) + frames.window_update(0, 2**24)
        )

    def receive(self, data: bytes) -> list[Stream]:
        """Take what came; the streams that it opened."""
        if self.preface:
            skipped = min(self.preface, len(data))
            self.preface -= skipped
            data = data[skipped:]
        opened = []
        for frame in self.reader.receive(data):
            if frame.kind == frames.HEADERS:
                if frame.stream not in self.streams:
                    opened.append(self._open(frame.stream))
            elif frame.kind == frames.WINDOW_UPDATE:
                increment = int.from_bytes(frame.payload, "big")
                if frame.stream == 0:
                    self.window += increment
                elif stream := self.streams.get(frame.stream):
                    stream.window += increment
            elif frame.kind == frames.RST_STREAM:
                if stream := self.streams.pop(frame.stream, None):
                    stream.open = False
            elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
                self._settings(frame.payload)
            elif frame.kind == frames.PING and not frame.flags & frames.ACK:
                self.out += frames.frame(frames.PING, frames.ACK, 0, frame.payload)
        return opened

    def message(self, stream: Stream, now_ns: int) -> bool:
        """Send a message; False if there is no window for it."""
        length = len(self._prefix) + frames.STAMP.size + len(self._padding)
        if stream.window < length or self.window < length or len(self.out) > _CHUNK:
            return False
        stream.window -= length
        self.window -= length
        self.out += stream.header
        self.out += self._prefix + frames.STAMP.pack(now_ns) + self._padding
        return True

    def _open(self, number: int) -> Stream:
        stream = self.streams[number] = Stream(self, number, self.size)
        self.out += frames.frame(frames.HEADERS, frames.END_HEADERS, number, _STATUS_200 + _HEAD)
        return stream

    def _settings(self, payload: bytes) -> None:
        window = frames.setting(payload, frames.INITIAL_WINDOW_SIZE)
        if window is not None:
            for stream in self.streams.values():
                stream.window += window - self.initial_window
            self.initial_window = window
        self.out += frames.frame(frames.SETTINGS, frames.ACK, 0)

    def flush(self) -> None:
        """Write what the socket takes."""
        if self.out:
            with suppress(BlockingIOError):
                del self.out[: self.sock.send(self.out)]

    def lost(self) -> None:
        """Its streams get nothing more."""
        for stream in self.streams.values():
            stream.open = False
        self.streams.clear()
        self.sock.close()


class Wheel:
    """Which streams are due, and when."""

    def __init__(self, rate: int, rng: Random) -> None:
        self.slots: list[list[Stream | EventStream]] = [
            [] for _ in range(max(1, round(1 / rate / SLOT_S)))
        ]
        self._rng = rng
        self._turned = 0
        self._start = time.monotonic()

    def add(self, stream: Stream | EventStream) -> None:
        """Have it sent to from now on."""
        self._rng.choice(self.slots).append(stream)

    def wait_s(self) -> float:
        """Until the next slot is due; 0 if one is."""
        return max(0.0, self._start + self._turned * SLOT_S - time.monotonic())

    def due(self) -> list[Any]:
        """The open streams of all slots that are due."""
        streams: list[Any] = []
        last = int((time.monotonic() - self._start) / SLOT_S)
        if last - self._turned > len(self.slots):  # far behind: what was missed is left out
            self._turned = last - len(self.slots)
        while self._turned <= last:
            index = self._turned % len(self.slots)
            self.slots[index] = alive = [stream for stream in self.slots[index] if stream.open]
            streams += alive
            self._turned += 1
        return streams


class Server:
    """All connections on all ports."""

    def __init__(self, ports: Sequence[int], rate: int, size: int, events: bool) -> None:
        self._size = size
        self._kind: Any = EventSender if events else Connection
        self._wheel = Wheel(rate, Random(1))
        self._connections: dict[int, Any] = {}
        self._listening: dict[int, socket.socket] = {}
        self._epoll = select.epoll()
        self.left_out = 0
        for port in ports:
            sock = socket.create_server(("127.0.0.1", port), backlog=4096)
            sock.setblocking(False)
            self._listening[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Until a signal raises SystemExit."""
        while True:
            # epoll itself waits in whole milliseconds only.
            select.select((self._epoll,), (), (), self._wheel.wait_s())
            touched: dict[Any, None] = {}
            for fd, _ in self._epoll.poll(0):
                if listening := self._listening.get(fd):
                    self._accept(listening, touched)
                else:
                    self._read(self._connections[fd], touched)
            self._send(self._wheel.due(), touched)
            for connection in touched:
                try:
                    connection.flush()
                except OSError:
                    self._drop(connection)

    def _accept(self, listening: socket.socket, touched: dict[Any, None]) -> None:
        try:
            sock, _ = listening.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connections[sock.fileno()] = self._kind(sock, self._size)
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        touched[connection] = None

    def _read(self, connection: Any, touched: dict[Any, None]) -> None:
        try:
            data = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            touched.pop(connection, None)
            self._drop(connection)
            return
        for stream in connection.receive(data):
            self._wheel.add(stream)
        touched[connection] = None

    def _send(self, due: list[Any], touched: dict[Any, None]) -> None:
        if not due:
            return
        now_ns = time.monotonic_ns()
        for stream in due:
            if stream.connection.message(stream, now_ns):
                touched[stream.connection] = None
            else:
                self.left_out += 1

    def _drop(self, connection: Any) -> None:
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            connection.lost()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--rate", type=int, required=True, help="messages per second and stream")
    parser.add_argument(
        "--size", type=int, required=True, help="bytes of a message, at least 8 (an event: 32)"
    )
    parser.add_argument("--events", action="store_true", help="server-sent events over HTTP/1.1")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    server = Server(given.ports, given.rate, given.size, given.events)
    try:
        server.run()
    finally:
        print(f"left out {server.left_out} messages for want of window", file=sys.stderr)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
