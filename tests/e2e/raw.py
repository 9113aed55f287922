"""An HTTP/1.1 backend that is nothing but sockets: it keeps every octet that it got.

Each connection is served by a thread that runs a script: a function of the :class:`RawConnection`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

from .processes import WAIT_S

Script = Callable[["RawConnection"], None]


class RawConnection:
    """One accepted connection. ``received`` is all that came."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.number = number
        self.received = b""
        self.ended = threading.Event()
        self._sock = sock
        self._read = 0
        sock.settimeout(WAIT_S)

    def send(self, octets: bytes) -> None:
        self._sock.sendall(octets)

    def until(self, end: bytes) -> bytes:
        """What comes up to and with ``end``. EOFError if the connection ends before."""
        while (at := self.received.find(end, self._read)) < 0:
            self._more()
        start, self._read = self._read, at + len(end)
        return self.received[start : self._read]

    def head(self) -> bytes:
        """A request head."""
        return self.until(b"\r\n\r\n")

    def exactly(self, size: int) -> bytes:
        while len(self.received) < self._read + size:
            self._more()
        start, self._read = self._read, self._read + size
        return self.received[start : self._read]

    def request(self) -> tuple[bytes, bytes]:
        """A request: its head, and its body as it was framed."""
        head = self.head()
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            return head, self.until(b"0\r\n\r\n")
        _, found, rest = lower.partition(b"\r\ncontent-length: ")
        return head, self.exactly(int(rest.split(b"\r\n")[0])) if found else b""

    def until_closed(self) -> None:
        """Until the peer closes its side."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._more()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _more(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            self.ended.set()
            raise EOFError
        self.received += data


class RawBackend:
    """Listens on a port, and runs ``script`` on each connection."""

    def __init__(self, script: Script) -> None:
        self.connections: list[RawConnection] = []
        self._script = script
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def received(self) -> bytes:
        """All that came, connection by connection."""
        return b"".join(connection.received for connection in self.connections)

    def connection(self, number: int) -> RawConnection:
        """The connection with this number, from 0, once it is there."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.connections) > number, WAIT_S):
                raise TimeoutError(f"no connection {number}")
        return self.connections[number]

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join(WAIT_S)
        self._listening.close()
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                connection = RawConnection(sock, len(self.connections))
                with self._changed:
                    self.connections.append(connection)
                    self._changed.notify_all()
                thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, connection: RawConnection) -> None:
        try:
            self._script(connection)
        except (EOFError, OSError):
            pass
        finally:
            connection.ended.set()
            connection.close()


def echo(connection: RawConnection) -> None:
    """Answer each request with its head, as it was received."""
    while True:
        head, body = connection.request()
        answer = head + body
        connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%s"
            % (len(answer), answer)
        )


class RawClient:
    """A client that is nothing but a socket."""

    def __init__(self, port: int, octets: bytes = b"") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(WAIT_S)
        self.received = b""
        self._read = 0
        if octets:
            self.sock.sendall(octets)

    def send(self, octets: bytes) -> None:
        self.sock.sendall(octets)

    def until(self, end: bytes) -> bytes:
        """What comes up to and with ``end``. EOFError if the connection ends before."""
        while (at := self.received.find(end, self._read)) < 0:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(repr(self.received))
            self.received += data
        start, self._read = self._read, at + len(end)
        return self.received[start : self._read]

    def response(self) -> tuple[int, bytes, bytes]:
        """A response with a length or chunks, or without a body: status, head, body."""
        head = self.until(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            return status, head, b"".join(self.chunks())
        _, found, rest = lower.partition(b"\r\ncontent-length: ")
        if not found:
            return status, head, b""
        size = int(rest.split(b"\r\n")[0])
        while len(self.received) < self._read + size:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(repr(self.received))
            self.received += data
        start, self._read = self._read, self._read + size
        return status, head, self.received[start : self._read]

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a body, without its trailers."""
        while size := int(self.until(b"\r\n").split(b";")[0], 16):
            chunk = self.until(b"\r\n")
            while len(chunk) < size + 2:
                chunk += self.until(b"\r\n")
            yield chunk[:-2]
        self.until(b"\r\n")

    def rest(self) -> bytes:
        """All that comes until the connection ends."""
        while data := self.sock.recv(65536):
            self.received += data
        start, self._read = self._read, len(self.received)
        return self.received[start:]

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
