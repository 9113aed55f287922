"""Connections held open: idle after one request, or with a response that nobody reads."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from types import TracebackType

from benchmarks.errors import BenchmarkError
from benchmarks.streams import frames

TIMEOUT_S = 20.0
"""How long the response to one request may take."""

_AT_ONCE = 20
_CHUNK = 65_536


def request(path: str) -> bytes:
    """What a client writes first: preface, SETTINGS acknowledged, GET ``path`` as stream 1."""
    head = b"\x82\x86" + frames.fields(((":path", path), (":authority", "benchmark.test")))
    flags = frames.END_HEADERS | frames.END_STREAM
    return frames.frame(frames.HEADERS, flags, 1, head)


def start(stream_window: int = frames.DEFAULT_WINDOW, connection_window: int = 0) -> bytes:
    """Preface and SETTINGS; ``connection_window`` is added to the 65,535 octets it begins with."""
    opening = frames.PREFACE + frames.settings(((frames.INITIAL_WINDOW_SIZE, stream_window),))
    if connection_window:
        opening += frames.window_update(0, connection_window)
    return opening + frames.frame(frames.SETTINGS, frames.ACK, 0)


class HeldConnections:
    """Connections to 127.0.0.1:``port``; closed when the context is left."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []

    def open_idle(self, count: int, path: str) -> None:
        """Open ``count`` more, each with one request for ``path`` that is answered whole.

        BenchmarkError if one is not.
        """
        for at in range(0, count, _AT_ONCE):
            batch = [self._open() for _ in range(min(_AT_ONCE, count - at))]
            for sock in batch:
                sock.sendall(start() + request(path))
            for sock in batch:
                _read_response(sock)

    def open_stalled(self, count: int, path: str, *, windows: bool) -> None:
        """Open ``count`` more, each with a request for ``path`` whose response is never read.

        With ``windows`` the client allows as much as can be said, and it is TCP alone that stops
        the sender; without, it allows 65,535 octets.
        """
        opening = start()
        if windows:
            opening = start(frames.MAX_WINDOW, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
        for _ in range(count):
            self._open().sendall(opening + request(path))

    def _open(self) -> socket.socket:
        try:
            sock = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        except OSError as error:
            raise BenchmarkError(f"connection {len(self._sockets) + 1}: {error}") from error
        self._sockets.append(sock)
        return sock

    def close(self) -> None:
        """Close them all."""
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def __len__(self) -> int:
        return len(self._sockets)

    def __enter__(self) -> HeldConnections:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TlsConnections(HeldConnections):
    """The same over TLS. Nobody is verified: that is measured elsewhere."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.set_alpn_protocols(["h2"])

    def _open(self) -> socket.socket:
        plain = super()._open()
        try:
            secure = self._context.wrap_socket(plain, server_hostname="localhost")
        except OSError as error:
            raise BenchmarkError(f"connection {len(self)}: {error}") from error
        # wrap_socket has taken the descriptor over.
        self._sockets[-1] = secure
        return secure


def _read_response(sock: socket.socket) -> None:
    reader = frames.FrameReader()
    while True:
        try:
            data = sock.recv(_CHUNK)
        except OSError as error:
            raise BenchmarkError(f"no response: {error}") from error
        if not data:
            raise BenchmarkError("the proxy closed a connection that was waiting for a response")
        if _ended(list(reader.receive(data))):
            return


def _ended(received: Sequence[frames.Frame]) -> bool:
    """Whether stream 1 has ended well."""
    for frame in received:
        if frame.kind in (frames.RST_STREAM, frames.GOAWAY):
            raise BenchmarkError(f"instead of a response came frame type {frame.kind}")
        if frame.kind in (frames.DATA, frames.HEADERS) and frame.flags & frames.END_STREAM:
            return True
    return False
