"""Pools seen from outside: requests without a client, and addresses that do not answer.

``view(pool)`` says in one line what there is (STYLE.md, 6): the streams of each open connection,
then what is retiring, being dialled and waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gateway.errors import Failure
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.pool import Pool
from gateway.wire.http2 import StreamOwner
from tests.rig import Rig, request

FIELDS = tuple(request())
MAX_STREAMS = 3  # SETTINGS_MAX_CONCURRENT_STREAMS
NEVER = float("inf")


def view(pool: Pool) -> str:
    """The state of a pool: ``[1 0] retiring=1 dials=1 waiting=2``, zeros left out."""
    text = "[" + " ".join(str(c.streams) for c in pool.connections) + "]"
    for name, number in (
        ("retiring", len(pool.retiring)),
        ("dials", len(pool._dials)),
        ("waiting", len(pool._waiting)),
    ):
        if number:
            text += f" {name}={number}"
    return text if pool.endpoint.available else text + " unavailable"


class Asker(StreamOwner):
    """A request without a client: takes a stream, or waits for one."""

    def __init__(self, pool: Pool, wait_until: float = NEVER) -> None:
        self.pool = pool
        self.wait_until = wait_until
        self.waiting = False
        self.connection: UpstreamConnection | None = None
        self.stream: Any = None
        self.failure: Failure | None = None
        self.closed: tuple[int, int] | None = None
        self.refused = False
        connection = pool.acquire(pool.reactor.now)
        if connection is not None:
            self.on_connection(connection)
        elif not pool.wait(self, pool.reactor.now):
            self.refused = True

    def on_connection(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        self.stream = connection.open_stream(self, FIELDS, (), True, False)

    def on_unavailable(self, failure: Failure) -> None:
        self.failure = failure

    def response_head(self, head: object, end: bool) -> None:
        pass

    def response_data(self, data: bytes, end: bool) -> None:
        pass

    def response_closed(self, why: int, code: int) -> None:
        self.closed = (why, code)
        self._done()

    def cancel(self) -> None:
        """Give up, whatever it is doing."""
        if self.waiting:
            self.pool.cancel(self)
        elif self.connection is not None and self.stream.open:
            self.connection.codec.reset(self.stream, 8)
            self._done()

    def _done(self) -> None:
        connection, self.connection = self.connection, None
        assert connection is not None
        connection.stream_closed()


def ask(pool: Pool, number: int, **options: Any) -> list[Asker]:
    return [Asker(pool, **options) for _ in range(number)]


def settled(rig: Rig, pool: Pool) -> None:
    """Wait until dials are done and the settings of all connections are known."""
    rig.until(lambda: not pool._dials and all(c.settled for c in pool.connections), repr(pool))


@contextmanager
def blackhole() -> Iterator[str]:
    """An address that neither accepts nor refuses: a listening socket whose queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
            fillers.append(filler)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for filler in fillers:
            filler.close()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
