"""A whole worker on Trio, in this process, between real sockets and the ``h2`` library."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing

from gateway import config
from gateway.telemetry import GAUGES, Counter, SharedMemory
from gateway.wire.frames import PREFACE, settings_frame
from gateway.worker import Worker
from tests.rig import Frames, goaway, request

pytestmark = pytest.mark.filterwarnings("error::ResourceWarning")
GIVE_UP_S = 20.0

# No deadline comes to the rescue of a reactor that was not woken.
QUIET = config.Http2(settings_timeout_s=1000.0, preface_timeout_s=1000.0, stall_timeout_s=None)


class Talk:
    """One ``h2`` connection on a Trio stream; :meth:`next` gives its events one by one."""

    def __init__(self, stream: trio.SocketStream, *, client: bool) -> None:
        self.stream = stream
        self.conn = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client, header_encoding=None)
        )
        self.conn.initiate_connection()
        self._events: list[Any] = []
        self._frames = Frames(preface=not client)
        self.goaways = 0

    async def flush(self) -> None:
        data = self.conn.data_to_send()
        if data:
            await self.stream.send_all(data)

    async def next(self, kind: type) -> Any:
        """The next event of a kind; others are passed over. None at the connection's end."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                    self.conn.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                if isinstance(event, kind):
                    return event
            await self.flush()
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            for frame in self._frames.feed(data):
                if frame[3] == 0x7 and len(frame) >= 17:
                    # A graceful end goes on; the library would let nothing more pass.
                    self.goaways += 1
                else:
                    self._events += self.conn.receive_data(frame)

    async def get(self, path: bytes = b"/") -> tuple[bytes, bytes]:
        """A request; the status and the body of the response."""
        stream_id = self.conn.get_next_available_stream_id()
        self.conn.send_headers(stream_id, request(b"GET", path), end_stream=True)
        head = await self.next(h2.events.ResponseReceived)
        assert head is not None, "the connection ended"
        body = b""
        while True:
            event = await self.next(h2.events.DataReceived | h2.events.StreamEnded)  # type: ignore[arg-type]
            if isinstance(event, h2.events.StreamEnded):
                return dict(head.headers)[b":status"], body
            body += event.data


async def answer(talk: Talk) -> None:
    """A backend that answers every request with its path."""
    while (event := await talk.next(h2.events.RequestReceived)) is not None:
        talk.conn.send_headers(event.stream_id, [(b":status", b"200")])
        talk.conn.send_data(event.stream_id, dict(event.headers)[b":path"], end_stream=True)
        await talk.flush()


class Stage:
    """A worker, its backend, and what is told of both."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.worker: Worker
        self.shared: SharedMemory
        self.listeners: list[socket.socket] = []

    def count(self, counter: Counter) -> int:
        value: int = self.shared.row(0).counters[counter]
        return value

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the worker run until the condition holds."""
        while not condition():
            await trio.testing.wait_all_tasks_blocked(0.001)

    async def connect(self, number: int = 0) -> Talk:
        address = self.listeners[number].getsockname()
        if isinstance(address, str):
            return Talk(await trio.open_unix_socket(address), client=True)
        return Talk(await trio.open_tcp_stream(*address[:2]), client=True)  # noqa: TID251


def listening(family: socket.AddressFamily = socket.AF_INET, address: Any = None) -> socket.socket:
    sock = socket.socket(family)
    sock.bind(address or ("127.0.0.1", 0))
    sock.listen()
    return sock


@asynccontextmanager
async def stage(
    serve: Callable[[Talk], Awaitable[None]] = answer,
    *,
    listeners: list[socket.socket] | None = None,
    gateway: config.Gateway | None = None,
    listener: dict[str, Any] | None = None,
    **cluster: Any,
) -> AsyncIterator[Stage]:
    """A worker that serves; at its end it is drained, and the gauges must come to zero."""
    listeners = listeners or [listening()]
    with trio.fail_after(GIVE_UP_S):
        async with trio.open_nursery() as nursery:
            backend = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = backend[0].socket.getsockname()[1]

            async def one(stream: trio.SocketStream) -> None:
                async with stream:
                    await serve(Talk(stream, client=False))

            nursery.start_soon(trio.serve_listeners, one, backend)
            cluster.setdefault("endpoints", (config.ClusterEndpoint(address=f"127.0.0.1:{port}"),))
            cluster = {"idle_timeout_s": 1000.0, "keepalive_interval_s": None, **cluster}
            settings = config.Config(
                http2=QUIET,
                gateway=gateway or config.Gateway(drain_timeout_s=5.0),
                listeners=tuple(
                    config.Listener(address="127.0.0.1:0", **(listener or {})) for _ in listeners
                ),
                routes=(config.Route(cluster="c"),),
                clusters={"c": config.Cluster(name="c", **cluster)},
            )
            shared = SharedMemory(1, 16)
            staged = Stage(nursery)
            staged.shared = shared
            staged.listeners = listeners
            staged.worker = Worker(settings, listeners, shared.row(0))
            ready = trio.Event()
            serving = trio.CancelScope()

            async def work() -> None:
                with serving:
                    await staged.worker.run(ready)

            nursery.start_soon(work)
            await ready.wait()
            yield staged
            if staged.listeners[0].fileno() >= 0:
                await staged.worker.drain()
            await staged.until(lambda: not any(map(staged.count, GAUGES)))
            serving.cancel()
            await trio.testing.wait_all_tasks_blocked()
            staged.worker.reactor.close()
            shared.close()
            nursery.cancel_scope.cancel()


async def test_serves_requests() -> None:
    async with stage() as staged:
        talk = await staged.connect()
        for path in (b"/a", b"/b"):
            assert await talk.get(path) == (b"200", path)
        await talk.stream.aclose()
        assert staged.count(Counter.REQUESTS) == 2
        assert staged.count(Counter.UPSTREAM_CONNECTIONS_OPENED) == 1


async def test_serves_every_listener(tmp_path: Path) -> None:
    sockets = [
        listening(),
        listening(socket.AF_INET6, ("::1", 0)),
        listening(socket.AF_UNIX, str(tmp_path / "s")),
    ]
    async with stage(listeners=sockets) as staged:
        for number in range(3):
            talk = await staged.connect(number)
            assert await talk.get() == (b"200", b"/")
            await talk.stream.aclose()


async def test_many_clients_at_once() -> None:
    async with stage() as staged:

        async def client(number: int) -> None:
            talk = await staged.connect()
            for _ in range(5):
                assert await talk.get(b"/%d" % number) == (b"200", b"/%d" % number)
            await talk.stream.aclose()

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(client, number)
        assert staged.count(Counter.RESPONSES_2XX) == 100


async def test_trio_s_tasks_go_on_under_load() -> None:
    """The reactor goes back to Trio in time: a task that only passes checkpoints gets its turns."""
    async with stage() as staged:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            talk = await staged.connect()
            for _ in range(20):
                await talk.get()
            await talk.stream.aclose()
            nursery.cancel_scope.cancel()
        assert turns > 20


async def test_host_names_are_looked_up() -> None:
    resolver = Resolver({"backend.test": "127.0.0.1"})
    trio.socket.set_custom_hostname_resolver(resolver)
    backend = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = backend[0].socket.getsockname()[1]

    async def one(stream: trio.SocketStream) -> None:
        async with stream:
            await answer(Talk(stream, client=False))

    endpoint = config.ClusterEndpoint(address=f"backend.test:{port}")
    async with stage(endpoints=(endpoint,)) as staged:
        staged.nursery.start_soon(trio.serve_listeners, one, backend)
        talk = await staged.connect()
        assert await talk.get() == (b"200", b"/")
        await talk.stream.aclose()
    assert resolver.asked == ["backend.test"]


async def test_a_host_name_that_is_not_known() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver({}))
    endpoint = config.ClusterEndpoint(address="absent.test:80")
    async with stage(endpoints=(endpoint,), pending_timeout_s=0.01) as staged:
        talk = await staged.connect()
        status, body = await talk.get()
        assert status in (b"502", b"503")
        assert b"absent.test:80: Name or service not known" in body
        await talk.stream.aclose()


class Resolver(trio.abc.HostnameResolver):
    """Knows a few names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.names[name], port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_min_connections_are_opened_before_the_first_request() -> None:
    async with stage(min_connections=2) as staged:
        await staged.until(lambda: staged.count(Counter.UPSTREAM_CONNECTIONS_OPEN) == 2)
        assert staged.count(Counter.REQUESTS) == 0


async def test_the_limit_of_connections_is_the_listener_s() -> None:
    async with stage(listener={"max_connections": 1}) as staged:
        first = await staged.connect()
        assert await first.get() == (b"200", b"/")
        second = await staged.connect()
        assert await second.next(h2.events.RemoteSettingsChanged) is None
        assert staged.count(Counter.DOWNSTREAM_CONNECTIONS_REFUSED) == 1
        await second.stream.aclose()
        await first.stream.aclose()
        await staged.until(lambda: not staged.count(Counter.DOWNSTREAM_CONNECTIONS_OPEN))
        third = await staged.connect()
        assert await third.get() == (b"200", b"/")
        await third.stream.aclose()


async def test_drain_lets_streams_finish() -> None:
    asked, go = trio.Event(), trio.Event()

    async def slow(talk: Talk) -> None:
        event = await talk.next(h2.events.RequestReceived)
        asked.set()
        await go.wait()
        talk.conn.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)
        await talk.flush()
        await talk.next(h2.events.RequestReceived)

    async with stage(slow) as staged:
        talk = await staged.connect()
        talk.conn.send_headers(1, request(), end_stream=True)
        await talk.flush()
        await asked.wait()
        drained = trio.Event()

        async def drain() -> None:
            await staged.worker.drain()
            drained.set()

        staged.nursery.start_soon(drain)
        # The listening socket is closed at once, the stream lives.
        await staged.until(lambda: staged.listeners[0].fileno() < 0)
        assert not drained.is_set()
        go.set()
        head = await talk.next(h2.events.ResponseReceived)
        assert dict(head.headers)[b":status"] == b"200"
        assert await talk.next(h2.events.RequestReceived) is None
        await talk.stream.aclose()
        await drained.wait()


async def test_an_idle_client_is_told_of_the_drain() -> None:
    """Nothing else happens that would wake the reactor."""
    async with stage(
        gateway=config.Gateway(drain_timeout_s=1000.0), listener={"idle_timeout_s": 1000.0}
    ) as staged:
        talk = await staged.connect()
        assert await talk.get() == (b"200", b"/")
        await trio.testing.wait_all_tasks_blocked(0.05)
        staged.nursery.start_soon(staged.worker.drain)
        assert await talk.next(h2.events.ResponseReceived) is None
        assert talk.goaways == 2
        await talk.stream.aclose()


async def test_drain_ends_after_its_timeout() -> None:
    """Streams that do not end are failed, so that their clients learn why."""
    asked = trio.Event()

    async def never(talk: Talk) -> None:
        await talk.next(h2.events.RequestReceived)
        asked.set()
        await talk.next(h2.events.RequestReceived)

    async with stage(never, gateway=config.Gateway(drain_timeout_s=0.05)) as staged:
        talk = await staged.connect()
        talk.conn.send_headers(1, request(), end_stream=True)
        await talk.flush()
        await asked.wait()
        staged.nursery.start_soon(staged.worker.drain)
        head = dict((await talk.next(h2.events.ResponseReceived)).headers)
        assert (head[b":status"], head[b"x-gateway-error"]) == (b"503", b"draining")
        assert await talk.next(h2.events.ResponseReceived) is None
        await talk.stream.aclose()


async def test_a_backend_that_goes_away_between_requests() -> None:
    """GOAWAY after every response: each request goes to a new connection, none is lost."""

    async def once(talk: Talk) -> None:
        event = await talk.next(h2.events.RequestReceived)
        if event is None:
            return
        talk.conn.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)
        await talk.flush()
        await talk.stream.send_all(goaway(event.stream_id))
        await talk.next(h2.events.RequestReceived)

    async with stage(once) as staged:
        talk = await staged.connect()
        for _ in range(10):
            assert (await talk.get())[0] == b"200"
        await talk.stream.aclose()


def test_run_ends_on_sigterm() -> None:
    """The whole entry point, in a process: ready on its pipe, exit code 0 after SIGTERM."""
    reading, writing = os.pipe()
    program = Path(__file__).parent / "worker_program.py"
    with subprocess.Popen(
        [sys.executable, program, str(writing)], stdout=subprocess.PIPE, pass_fds=[writing]
    ) as process:
        os.close(writing)
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            assert os.read(reading, 10) == b"1"
            assert os.read(reading, 10) == b"", "closed by the worker"
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.settimeout(GIVE_UP_S)
                client.sendall(PREFACE + settings_frame({}))
                assert client.recv(9)[3] == 4, "SETTINGS"
            process.send_signal(signal.SIGTERM)
            counted = json.loads(process.stdout.read())
            assert process.wait(GIVE_UP_S) == 0
        finally:
            os.close(reading)
            process.kill()
    assert counted["downstream_connections_accepted"] == 1
    assert counted["downstream_connections_open"] == 0
