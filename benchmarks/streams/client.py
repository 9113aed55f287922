"""The client: opens streams, and says how many messages came and how long they took.

It is told what to do line by line: it writes ``ready`` when every stream has had a message, counts
from the line ``go`` (answered with ``going``) to the line ``stop``, and answers that with one line
of JSON. Of server-sent events it also says how many of those were lost that were sent before the
line ``stop``: it reads on until every stream has had one that was sent later.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import time
from array import array
from typing import Any, Final

from benchmarks.spread import latencies
from benchmarks.streams import frames
from benchmarks.streams.events import Broken, EventReader

STREAMS_PER_CONNECTION = 100
"""What servers allow by default."""

WARM_UP_S = 20.0
"""How long the first message of a stream may take."""

LATE_S = 10.0
"""How long a message may take at the end."""

_CHUNK = 262_144
_STDIN: Final = 0
_REQUEST = b"\x83\x86" + frames.fields(  # POST, http: RFC 7541 appendix A
    (
        (":path", "/benchmark.Tokens/Generate"),
        (":authority", "benchmark.test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "grpc-benchmark/1.0"),
    )
)
_PROMPT = b"\0\0\0\0\x02hi"


class Connection:
    """Some of the streams.

    ``waiting`` are those that had no message yet, ``read_ns`` is when the socket was last read.
    """

    def __init__(self, port: int, streams: int, size: int) -> None:
        self._message = frames.PREFIX_BYTES + size
        self._reader = frames.FrameReader()
        self._partial: dict[int, bytes] = {}
        self.read_ns = 0
        numbers = range(1, 2 * streams, 2)
        self.waiting = set(numbers)
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Windows so large that none is ever given back: 100 MiB would last for hours.
        out = [
            frames.PREFACE,
            frames.settings(((frames.INITIAL_WINDOW_SIZE, frames.MAX_WINDOW),)),
            frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW),
        ]
        for number in numbers:
            out.append(frames.frame(frames.HEADERS, frames.END_HEADERS, number, _REQUEST))
            out.append(frames.frame(frames.DATA, frames.END_STREAM, number, _PROMPT))
        self.sock.sendall(b"".join(out))
        self.sock.setblocking(False)

    def read(self, sent_ns: array[int]) -> int:
        """Take what came; the times at which its messages were sent go to ``sent_ns``.

        Returns how many messages those are. :exc:`Broken` if a stream or the connection ended.
        """
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            raise Broken("the proxy closed a connection")
        self.read_ns = time.monotonic_ns()
        before = len(sent_ns)
        message = self._message
        partial = self._partial
        unpack = frames.STAMP.unpack_from
        for kind, flags, stream, payload in self._reader.receive(data):
            if kind == frames.DATA:
                if stream in partial:
                    payload = partial.pop(stream) + payload
                i = 0
                while i + message <= len(payload):
                    sent_ns.append(unpack(payload, i + frames.PREFIX_BYTES)[0])
                    i += message
                if i < len(payload):
                    partial[stream] = payload[i:]
                if self.waiting and i:
                    self.waiting.discard(stream)
                if flags & frames.END_STREAM:
                    raise Broken(f"stream {stream} ended")
            else:
                self._control(kind, flags, stream, payload)
        return len(sent_ns) - before

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self.sock.send(frames.frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.PING and not flags & frames.ACK:
            self.sock.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.HEADERS and flags & frames.END_STREAM:
            raise Broken(f"stream {stream} ended")
        elif kind == frames.RST_STREAM:
            raise Broken(f"stream {stream} was reset, error {int.from_bytes(payload, 'big')}")
        elif kind == frames.GOAWAY:
            raise Broken(f"GOAWAY {payload!r}")


class Client:
    """All streams."""

    def __init__(self, port: int, streams: int, size: int, events: bool) -> None:
        self._epoll = select.epoll()
        self._connections: dict[int, Any] = {}
        self._events = events
        while streams > 0:
            count = 1 if events else min(streams, STREAMS_PER_CONNECTION)
            connection = EventReader(port, size) if events else Connection(port, count, size)
            self._connections[connection.sock.fileno()] = connection
            self._epoll.register(connection.sock.fileno(), select.EPOLLIN)
            streams -= count
        self._latencies_us = array("d")
        self._since = time.monotonic()
        self._lost_before = 0

    def wait_for_all(self, timeout_s: float) -> None:
        """Until each stream has had the message it waits for. :exc:`Broken` after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while waiting := sum(len(each.waiting) for each in self._connections.values()):
            if time.monotonic() > end:
                raise Broken(f"{waiting} streams got no message within {timeout_s} s")
            self._turn(0.1)

    def run_until_told(self) -> str:
        """Serve until a line comes on stdin; the line. Empty when stdin is closed.

        If no message has come by then, the first one is waited for, at most :data:`LATE_S`.
        """
        self._latencies_us = array("d")
        self._since = time.monotonic()
        self._lost_before = self._lost()
        self._epoll.register(_STDIN, select.EPOLLIN)
        while not self._turn(1.0):
            continue
        self._epoll.unregister(_STDIN)
        end = time.monotonic() + LATE_S
        while not self._latencies_us and time.monotonic() < end:
            self._turn(0.1)
        return os.read(_STDIN, 64).decode().strip()

    def report(self) -> dict[str, float]:
        """Messages per second and their latencies since :meth:`run_until_told` was last called.

        Of events also how many were ``lost`` since. :exc:`Broken` if a stream stands still.
        """
        if not self._latencies_us:
            raise Broken("no message came")
        now_ns = time.monotonic_ns()
        per_s = len(self._latencies_us) / (time.monotonic() - self._since)
        figures = {"per_s": per_s, **latencies(self._latencies_us)}
        if self._events:
            for each in self._connections.values():
                each.expect(now_ns)
            self.wait_for_all(LATE_S)
            figures["lost"] = float(self._lost() - self._lost_before)
        return figures

    def _lost(self) -> int:
        return sum(each.lost for each in self._connections.values()) if self._events else 0

    def _turn(self, timeout_s: float) -> bool:
        """Read what is there; whether stdin has something."""
        told = False
        sent_ns = array("Q")
        add = self._latencies_us.append
        for fd, _ in self._epoll.poll(timeout_s):
            if fd == _STDIN:
                told = True
                continue
            del sent_ns[:]
            connection = self._connections[fd]
            if connection.read(sent_ns):
                now_ns = connection.read_ns
                for stamp in sent_ns:
                    add((now_ns - stamp) / 1000)
        return told


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument(
        "--size", type=int, required=True, help="bytes of a message; an event has at least 32"
    )
    parser.add_argument("--events", action="store_true", help="server-sent events over HTTP/1.1")
    given = parser.parse_args()
    try:
        client = Client(given.port, given.streams, given.size, given.events)
        client.wait_for_all(WARM_UP_S)
        print("ready", flush=True)
        if client.run_until_told() != "go":
            return
        print("going", flush=True)
        client.run_until_told()
        print(json.dumps(client.report()), flush=True)
    except (Broken, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
