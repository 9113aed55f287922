"""A reactor turned by hand, and peers that speak HTTP/2 by the ``h2`` library on real sockets.

Everything is in one thread: :meth:`Rig.until` waits (in poll) for any of the sockets, the reactor's
epoll among them, serves what is ready on both sides, and goes on until a condition holds. Nothing
sleeps, and nothing is timed but the moment at which a test gives up.

:meth:`Rig.finish` ends everything and then checks what must come back to zero: the gauges, the
streams in flight of every endpoint, the octets that are held for slow peers.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import pytest

from gateway import config
from gateway.balance import Endpoint
from gateway.net.addresses import Peers, socket_address
from gateway.net.networks import Networks
from gateway.net.reactor import Reactor
from gateway.net.transport import Transport
from gateway.proxy.downstream import Site
from gateway.proxy.opening import Entry, Opening
from gateway.telemetry import GAUGES, Counter, SharedMemory
from gateway.upstream.cluster import Cluster
from gateway.upstream.pool import Pool
from gateway.wire.codec import HeldOctets

GIVE_UP_S = 10.0
REFUSED = int(h2.errors.ErrorCodes.REFUSED_STREAM)
CANCEL = int(h2.errors.ErrorCodes.CANCEL)
NO_ERROR = int(h2.errors.ErrorCodes.NO_ERROR)
INTERNAL = int(h2.errors.ErrorCodes.INTERNAL_ERROR)

Fields = list[tuple[bytes, bytes]]

GRPC: Fields = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"a.test"),
    (b":path", b"/test.Service/Call"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
GRPC_OK: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS: Fields = [(b"grpc-status", b"0")]


def request(method: bytes = b"GET", path: bytes = b"/", *more: tuple[bytes, bytes]) -> Fields:
    """The fields of a plain request."""
    return [
        (b":method", method),
        (b":scheme", b"http"),
        (b":authority", b"a.test"),
        (b":path", path),
        *more,
    ]


def goaway(last: int, code: int = 0) -> bytes:
    """A GOAWAY frame by hand: the library's own ends its connection for good."""
    return b"\0\0\x08\x07\0\0\0\0\0" + struct.pack(">LL", last, code)


class Frames:
    """Cuts what is read into whole frames; a client's preface counts as one."""

    def __init__(self, *, preface: bool) -> None:
        self._preface = preface
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that ``data`` completes."""
        self._rest += data
        while True:
            size = 24 if self._preface else 9
            if len(self._rest) < size:
                return
            if not self._preface:
                size += int.from_bytes(self._rest[:3], "big")
                if len(self._rest) < size:
                    return
            self._preface = False
            frame = bytes(self._rest[:size])
            del self._rest[:size]
            yield frame


class Message:
    """What a peer has received on one stream: a request, or a response."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.heads: list[dict[bytes, bytes]] = []
        self.interim: list[dict[bytes, bytes]] = []
        self.body = b""
        self.trailers: dict[bytes, bytes] | None = None
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        """0 before the head."""
        return int(self.fields.get(b":status", b"0"))

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.ended or self.reset is not None

    def body_ends(self, octets: bytes) -> bool:
        """Whether the body so far ends with these octets."""
        return self.body.endswith(octets)

    def summary(self) -> tuple[object, ...]:
        """What tests compare."""
        return (self.status, self.body, self.trailers, self.ended, self.reset)

    def __repr__(self) -> str:
        return f"<Message {self.summary()} {self.fields}>"


class Peer:
    """One end of a connection that is spoken by the ``h2`` library.

    It reads whenever something comes, unless ``reading`` is False; octets of DATA are given back at
    once, unless ``crediting`` is False.
    """

    def __init__(
        self, rig: Rig, sock: socket.socket, *, client: bool, settings: dict[int, int] | None = None
    ) -> None:
        sock.setblocking(False)
        self.rig = rig
        self.sock = sock
        self.reading = True
        self.crediting = True
        self.closed: str | None = None
        self.goaways: list[tuple[int, int]] = []
        self.faults: list[str] = []
        self.pings = 0
        self.pongs = 0
        self.answering = True
        self.messages: dict[int, Message] = {}
        self.order: list[int] = []
        self._out = bytearray()
        self._frames = Frames(preface=not client)
        self.conn = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client, header_encoding=None)
        )
        self.conn.local_settings = h2.settings.Settings(
            client=client,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1000,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 65536,
                **({h2.settings.SettingCodes(k): v for k, v in (settings or {}).items()}),
            },
        )
        self.conn.initiate_connection()
        rig.peers.append(self)
        self.flush()

    def flush(self) -> None:
        """Write what the library has, as far as the socket takes it."""
        self._out += self.conn.data_to_send()
        if self.closed is not None:
            return
        while self._out:
            try:
                sent = self.sock.send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                self.closed = str(error)
                return
            del self._out[:sent]

    def raw(self, octets: bytes) -> None:
        """Write octets that the library knows nothing of."""
        self.flush()
        self._out += octets
        self.flush()

    def pump(self) -> bool:
        """Read what is there; whether there was something."""
        if self.closed is not None or not self.reading:
            self.flush()
            return False
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            self.flush()
            return False
        except OSError as error:
            self.closed = str(error)
            return True
        if not data:
            self.closed = "closed"
            self.sock.close()
            return True
        for frame in self._frames.feed(data):
            if frame[3] == 0x7 and len(frame) >= 17:
                # A graceful end goes on; the library would let nothing more pass.
                last, code = struct.unpack_from(">LL", frame, 9)
                self.goaways.append((last, code))
                continue
            try:
                events = self.conn.receive_data(frame)
            except h2.exceptions.ProtocolError as error:
                # As servers that are made with the library do: GOAWAY, and that is all.
                self.faults.append(repr(error))
                self.flush()
                self.close()
                return True
            for event in events:
                self._event(event)
        if self.answering:
            self.flush()
        else:
            self.conn.clear_outbound_data_buffer()
        return True

    def _event(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived | h2.events.ResponseReceived):
            message = self.message(event.stream_id)
            message.fields = dict(event.headers)
            message.heads.append(message.fields)
            if event.stream_ended:
                message.ended = True
        elif isinstance(event, h2.events.InformationalResponseReceived):
            self.message(event.stream_id).interim.append(dict(event.headers))
        elif isinstance(event, h2.events.DataReceived):
            message = self.message(event.stream_id)
            message.body += event.data
            if self.crediting and event.flow_controlled_length:
                with suppress(h2.exceptions.ProtocolError):
                    self.conn.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
        elif isinstance(event, h2.events.TrailersReceived):
            self.message(event.stream_id).trailers = dict(event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            self.message(event.stream_id).ended = True
        elif isinstance(event, h2.events.StreamReset):
            self.message(event.stream_id).reset = int(event.error_code)
        elif isinstance(event, h2.events.PingReceived):
            self.pings += 1
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1

    def message(self, stream_id: int) -> Message:
        """What came on a stream."""
        if stream_id not in self.messages:
            self.messages[stream_id] = Message()
            self.order.append(stream_id)
        return self.messages[stream_id]

    # Sending.

    def send(self, fields: Fields, body: bytes | None = None, *, end: bool = True) -> int:
        """Send a request; its stream."""
        stream_id = self.conn.get_next_available_stream_id()
        self.conn.send_headers(stream_id, fields, end_stream=end and body is None)
        self.message(stream_id)
        if body is not None:
            self.data(stream_id, body, end=end)
        self.flush()
        return stream_id

    def head(self, stream_id: int, fields: Fields, *, end: bool = False) -> None:
        """Send HEADERS: a response head, or trailers with ``end``."""
        self.conn.send_headers(stream_id, fields, end_stream=end)
        self.flush()

    def data(self, stream_id: int, octets: bytes, *, end: bool = False) -> None:
        """Send DATA in frames as large as they may be; the window must have room for it."""
        size = self.conn.max_outbound_frame_size
        for i in range(0, max(len(octets), 1), size):
            last = i + size >= len(octets)
            self.conn.send_data(stream_id, octets[i : i + size], end_stream=end and last)
        self.flush()

    def room(self, stream_id: int) -> int:
        """Octets of DATA that may be sent now."""
        return self.conn.local_flow_control_window(stream_id)

    def reply(self, stream_id: int, body: bytes = b"ok", status: bytes = b"200") -> None:
        """A whole plain response."""
        self.head(stream_id, [(b":status", status)], end=not body)
        if body:
            self.data(stream_id, body, end=True)

    def rst(self, stream_id: int, code: int) -> None:
        """Send RST_STREAM."""
        self.conn.reset_stream(stream_id, code)
        self.flush()

    def close(self, *, abort: bool = False) -> None:
        """Close the socket, with a reset when ``abort``."""
        if abort:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        if self.closed is None:
            self.closed = "by us"


class Backend:
    """A listening socket on the loopback and its connections, newest last.

    ``on_request(peer, stream_id)`` is called when a request head is new; None leaves requests to
    the test.
    """

    def __init__(self, rig: Rig, port: int = 0, settings: dict[int, int] | None = None) -> None:
        self.rig = rig
        self.settings = settings
        self.accepting = True
        self.peers: list[Peer] = []
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("127.0.0.1", port))
        self.sock.listen(64)
        self.sock.setblocking(False)
        self.port: int = self.sock.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        rig.backends.append(self)

    def pump(self) -> bool:
        """Accept what waits."""
        if self.sock.fileno() < 0 or not self.accepting:
            return False
        try:
            sock, _ = self.sock.accept()
        except BlockingIOError:
            return False
        self.peers.append(Peer(self.rig, sock, client=False, settings=self.settings))
        return True

    @property
    def open_peers(self) -> list[Peer]:
        """Connections that are not closed."""
        return [peer for peer in self.peers if peer.closed is None]

    def requests(self) -> list[tuple[Peer, int]]:
        """All requests so far, over all connections."""
        return [(peer, stream_id) for peer in self.peers for stream_id in peer.order]

    def request(self, number: int = 0) -> tuple[Peer, int, Message]:
        """Wait for the request of that number; its connection, its stream and what came of it."""
        self.rig.until(lambda: len(self.requests()) > number, f"request {number}")
        peer, stream_id = self.requests()[number]
        self.rig.until(lambda: bool(peer.messages[stream_id].fields), "its head")
        return peer, stream_id, peer.messages[stream_id]

    def close(self, *, abort: bool = False) -> None:
        """Close everything."""
        self.sock.close()
        for peer in self.peers:
            peer.close(abort=abort)


class Rig:
    """See the module."""

    def __init__(
        self, *, limits: config.Http2 | None = None, max_buffered_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self.limits = limits or config.Http2()
        self.http1 = config.Http1()
        self.shared = SharedMemory(1, 64)
        self.row = self.shared.row(0)
        self.budget = HeldOctets(max_buffered_bytes)
        self.reactor = Reactor(self.budget, self.row)
        self._own = set(self.reactor.targets)
        self.peers: list[Peer] = []
        self.backends: list[Backend] = []
        self.clusters: list[Cluster] = []
        self.endpoints: set[Endpoint] = set()
        self.closables: list[Any] = []
        self.released = 0

    # What is counted.

    def count(self, counter: Counter) -> int:
        """A counter of the worker."""
        value: int = self.row.counters[counter]
        return value

    def gauges(self) -> dict[str, int]:
        """The gauges that are not zero."""
        return {
            gauge.name.lower(): self.count(gauge) for gauge in sorted(GAUGES) if self.count(gauge)
        }

    def targets(self) -> list[Any]:
        """What is registered with the reactor, without what the reactor itself registered."""
        return [t for fd, t in self.reactor.targets.items() if fd not in self._own]

    # Time.

    def _poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self.reactor.fileno(), select.POLLIN)
        for backend in self.backends:
            if backend.sock.fileno() >= 0 and backend.accepting:
                poll.register(backend.sock.fileno(), select.POLLIN)
        for peer in self.peers:
            if peer.closed is None and peer.reading:
                poll.register(peer.sock.fileno(), select.POLLIN)
        return poll

    def step(self, wait_s: float = 0.02) -> None:
        """Wait for any socket, then one turn of the reactor and of every peer."""
        poll = self._poll()
        for transport in self.reactor.flush_list:
            assert transport is not None
            wait_s = 0.0
        wait_s = max(0.0, min(wait_s, self.reactor.next_at - monotonic()))
        poll.poll(wait_s * 1000)
        self.reactor.turn(0.0)
        for backend in self.backends:
            backend.pump()
        for peer in list(self.peers):
            peer.pump()

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Serve both sides until the condition holds."""
        give_up = monotonic() + GIVE_UP_S
        while not condition():
            assert monotonic() < give_up, f"never came: {what or condition}"
            self.step()

    def settle(self) -> None:
        """Serve both sides until nobody has anything to say for a while.

        Before it is checked that something did NOT happen; for what is to happen there is
        :meth:`until`, which does not depend on how fast the kernel passes octets on.
        """
        quiet = 0
        give_up = monotonic() + GIVE_UP_S
        while quiet < 3:
            assert monotonic() < give_up, "never quiet"
            busy = bool(self._poll().poll(2.0))
            busy = self.reactor.turn(0.0) > 0 or busy
            for backend in self.backends:
                busy = backend.pump() or busy
            for peer in list(self.peers):
                busy = peer.pump() or busy
            quiet = 0 if busy or self.reactor.flush_list else quiet + 1

    def sweep(self, after_s: float) -> None:
        """Let every deadline within the next ``after_s`` seconds pass, all at once."""
        self.reactor.turn(0.0)
        self.reactor.sweep(self.reactor.now + after_s)
        # Back to the true time: the next sweep is not to wait for what was only pretended.
        self.reactor.sweep(self.reactor.now)

    # What is tested.

    def cluster(self, *addresses: str, name: str = "c", **settings: Any) -> Cluster:
        """A cluster of literal addresses, its pools ready to dial."""
        settings.setdefault("policy", "round_robin")
        settings.setdefault("protocol", "h2")
        cluster = Cluster(
            self.reactor,
            self.row,
            config.Cluster(
                name=name,
                endpoints=tuple(config.ClusterEndpoint(address=a) for a in addresses),
                **settings,
            ),
            config.Config(
                http1=self.http1, http2=self.limits, listeners=(), routes=(), clusters={}
            ),
        )
        self.clusters.append(cluster)
        self.resolve(cluster)
        return cluster

    def resolve(self, cluster: Cluster) -> None:
        """What the resolver does on Trio, for literal addresses."""
        for endpoint, pool in cluster.pools.items():
            self.endpoints.add(endpoint)
            target = socket_address(endpoint.key)
            assert target is not None
            pool.addresses = [target]

    def pool(self, address: str, **settings: Any) -> Pool:
        """The pool of a cluster with one endpoint."""
        (pool,) = self.cluster(address, **settings).pools.values()
        return pool

    def site(self, *clusters: Cluster, routes: Iterable[config.Route] | None = None) -> Site:
        """A site that routes everything to the first cluster, unless told otherwise."""
        if routes is None:
            routes = (config.Route(cluster=clusters[0].name),)
        settings = config.Config(
            http1=self.http1,
            http2=self.limits,
            listeners=(config.Listener(address="127.0.0.1:0"),),
            routes=tuple(routes),
            clusters={cluster.name: cluster.settings for cluster in clusters},
        )
        return Site(self.reactor, settings, {cluster.name: cluster for cluster in clusters})

    def connect(
        self,
        site: Site,
        *,
        idle_timeout_s: float | None = None,
        settings: dict[int, int] | None = None,
        client: bytes = b"192.0.2.7",
        send_buffer: int | None = None,
    ) -> Peer:
        """A client of the site."""
        ours, theirs = socket.socketpair()
        if send_buffer is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        ours.setblocking(False)
        transport = Transport(self.reactor, ours, self.limits.stall_timeout_s, upstream=False)
        entry = Entry(idle_timeout_s, Networks(()), Networks(()))
        Opening(site, transport, entry, client.decode(), Peers(), self._one_released)
        peer = Peer(self, theirs, client=True, settings=settings)
        self.settle()
        return peer

    def _one_released(self) -> None:
        self.released += 1

    # The end.

    def finish(self) -> None:
        """End everything and check that nothing is left."""
        try:
            self._finish()
        finally:
            self.close()

    def _finish(self) -> None:
        for backend in self.backends:
            backend.sock.close()
        for peer in self.peers:
            if peer.conn.config.client_side:
                peer.close()
        busy = (
            Counter.DOWNSTREAM_STREAMS_OPEN,
            Counter.UPSTREAM_STREAMS_OPEN,
            Counter.EXCHANGES_OPEN,
        )
        self.until(lambda: not any(map(self.count, busy)), f"gauges: {self.gauges()}")
        for cluster in self.clusters:
            cluster.close()
        for peer in self.peers:
            peer.reading = True
            assert peer.faults == []
        for thing in self.closables:
            thing.close()
        self.until(lambda: not self.gauges(), f"gauges: {self.gauges()}")
        assert [e for e in self.endpoints if e.in_flight or e.held] == []
        assert self.budget.total == 0
        self.until(lambda: not self.targets(), f"left: {self.targets()}")

    def close(self) -> None:
        """Close what is left, checked or not."""
        for backend in self.backends:
            backend.close()
        for peer in self.peers:
            peer.close()
        for target in self.targets():
            for name in ("cancel", "close"):
                end = getattr(target, name, None)
                if end is not None:
                    with suppress(TypeError):
                        end()
                        break
            else:
                target.fail("the test is over")
        self.reactor.close()
        self.shared.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Checked at the end of every test: nothing may be left open or in flight."""
    rig = Rig()
    yield rig
    rig.finish()


@pytest.fixture
def backend(rig: Rig) -> Backend:
    """An endpoint that answers nothing by itself."""
    return Backend(rig)
