"""The connections of one worker to one endpoint, and the requests that wait for one.

What happens is decided without I/O, by four facts: the open connections and the room each has, the
dials under way, the requests that wait, and since when the endpoint fails.

- A request takes a stream on the first HTTP/2 connection that has room, or the HTTP/1.1 connection
  that was used last, so that load gathers on few connections and the others become idle and go.
- Another connection is dialled when the emptiest one has used ``stream_share`` of its streams, or
  when requests wait for which the dials under way have no room, up to ``max_connections``.
- An endpoint whose dial failed is unavailable until a dial succeeds. The pool dials again by itself
  after a backoff, as long as somebody asked for the endpoint since; the requests that wait share
  the fate of that dial.
- Which protocol an endpoint speaks is learned if the cluster says ``auto``: a connection begins
  with the preface of HTTP/2, and an endpoint that answers it in HTTP/1.1 is asked so from then on.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from gateway import config
from gateway.balance.endpoint import Endpoint
from gateway.config import Address, TcpAddress
from gateway.errors import Failure, Kind, Side
from gateway.net.addresses import Peers, SocketAddress, socket_address
from gateway.net.reactor import NEVER, Reactor
from gateway.net.transport import Transport
from gateway.telemetry import Counter
from gateway.tls.channel import ChannelError
from gateway.upstream.backoff import Backoff, jittered
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.dial import Dial
from gateway.upstream.per_client import ClientPools
from gateway.upstream.secure import MAX_TICKETS, Handshake, server_name
from gateway.wire.codec import Codec
from gateway.wire.http1.client import Client
from gateway.wire.http2.connection import Connection
from gateway.wire.proxy_protocol import write_v1, write_v2

if TYPE_CHECKING:  # a gateway without TLS does not load OpenSSL
    from gateway.tls.client import ClientContext
    from gateway.tls.session import ClientSession

# Connections to one endpoint where the configuration leaves it open: an HTTP/2 connection carries
# many streams, an HTTP/1.1 connection one.
_MAX_HTTP2_CONNECTIONS: Final = 16
_MAX_HTTP1_CONNECTIONS: Final = 1024

# An HTTP/1.1 endpoint that closes a connection so soon, and before it was used, did not want it.
_FRESH_S: Final = 1.0

# Streams that a connection whose SETTINGS have not come yet is expected to take
# (RFC 9113 section 6.5.2 recommends that no peer allows fewer).
_EXPECTED_STREAMS: Final = 100


class Waiter(Protocol):
    """A request that waits for a connection. ``wait_until`` is its deadline."""

    wait_until: float
    waiting: bool

    def on_connection(self, connection: UpstreamConnection) -> None:
        """Here is one with room for a stream: open it now."""

    def on_unavailable(self, failure: Failure) -> None:
        """There will be none."""


class Pool:
    """See the module.

    ``pending`` counts the waiting requests of the whole cluster: a list of one, which its pools
    share.
    """

    def __init__(
        self,
        reactor: Reactor,
        endpoint: Endpoint,
        cluster: config.Cluster,
        settings: config.Config,
        pending: list[int],
        peers: Peers | None = None,
        tls: ClientContext | None = None,
    ) -> None:
        self.reactor = reactor
        self.http1 = cluster.protocol == "http1"
        # Whether the endpoint has shown that it speaks what it is spoken to in; ALPN says so.
        self._known = cluster.protocol != "auto" or tls is not None
        self._tls = tls
        self._tickets: list[Any] = []
        # Connections whose tickets have not come yet.
        self._sessions: dict[UpstreamConnection, ClientSession] = {}
        self._tried_other = False
        self.endpoint = endpoint
        self.connections: list[UpstreamConnection] = []
        self.retiring: set[UpstreamConnection] = set()
        self.addresses: list[SocketAddress] = []
        self.retry_at = 0.0
        self.last_error = ""
        self._cluster = cluster
        self._settings = settings
        self._pending = pending
        # HTTP/1.1 connections without a request, the one used last at the end.
        self._idle: list[UpstreamConnection] = []
        self._waiting: deque[Waiter] = deque()
        self._dials: set[Dial | Handshake] = set()
        self._backoff = Backoff(cluster.backoff_base_s, cluster.backoff_max_s)
        self._next_address = 0
        self._wanted = False
        self._closed = False
        try:
            literal = socket_address(cast("Address", endpoint.address))
        except OSError as error:
            literal = None
            self.last_error = f"{endpoint.key}: {error.strerror or error}"
        if literal is not None:
            self.addresses.append(literal)
        # Whose connections these are, where each says so in its first octets.
        self._peers = peers
        self._clients = ClientPools(self._make_client_pool)
        self.when_unused: Callable[[Peers], None] | None = None
        reactor.add_check(self.check)

    def of_client(self, peers: Peers) -> Pool:
        """The pool of the connections that belong to one client's connection."""
        return self._clients.get(peers)

    def _make_client_pool(self, peers: Peers) -> Pool:
        pool = Pool(
            self.reactor,
            self.endpoint,
            self._cluster,
            self._settings,
            self._pending,
            peers,
            self._tls,
        )
        pool._tickets = self._tickets
        pool.addresses = self.addresses
        pool.http1 = self.http1
        pool.when_unused = self._clients.forget
        return pool

    @property
    def closing(self) -> bool:
        """Whether connections that retire are still open."""
        return bool(self.retiring) or any(pool.closing for pool in self._clients)

    def _forget_if_unused(self) -> None:
        """A pool of one client goes with its last connection."""
        if self.when_unused is None or self._peers is None:
            return
        if not (self.connections or self.retiring or self._dials or self._waiting):
            self.when_unused(self._peers)

    @property
    def named(self) -> bool:
        """Whether the endpoint's address is a host name, which has to be looked up."""
        address = self.endpoint.address
        return isinstance(address, TcpAddress) and socket_address(address) is None

    def resolved(self, addresses: list[SocketAddress]) -> None:
        """The host name was looked up."""
        self.addresses = addresses
        for pool in self._clients:
            pool.addresses = addresses
        if self._waiting:
            self._dial_more(len(self._waiting))
        else:
            self.prepare()
        self.reactor.wake()

    def unresolved(self, detail: str) -> None:
        """The look-up failed; addresses found before stay in use."""
        if not self.addresses:
            self._failed(f"{self.endpoint.key}: {detail}", Kind.CONNECT_FAILED)
            self.reactor.wake()

    # -- requests ----------------------------------------------------------------------------

    def acquire(self, now: float) -> UpstreamConnection | None:
        """A connection with room for a stream. None: wait with :meth:`wait`."""
        connection: UpstreamConnection
        if self.http1:
            while self._idle:
                connection = self._idle.pop()
                if connection.room() > 0:
                    return connection
            return None
        for connection in self.connections:
            room = connection.room()
            if room > 0:
                share = self._cluster.stream_share
                if share < 1.0 and connection.limit - room >= connection.limit * share:
                    emptier = self._emptier(share)
                    if emptier is not None:
                        return emptier
                    self._dial_more(1)
                return connection
        return None

    def _emptier(self, share: float) -> UpstreamConnection | None:
        for connection in self.connections:
            if connection.streams < connection.limit * share and connection.room() > 0:
                return connection
        return None

    def wait(self, waiter: Waiter, now: float) -> bool:
        """Queue a request until a connection has room. False: the queue is full."""
        if self._pending[0] >= self._cluster.max_pending:
            self.reactor.count(Counter.PENDING_OVERFLOW)
            return False
        self._pending[0] += 1
        self.reactor.count(Counter.PENDING)
        waiter.waiting = True
        self._waiting.append(waiter)
        self.reactor.note(waiter.wait_until)
        self._wanted = True
        if now >= self.retry_at:
            self._dial_more(len(self._waiting))
        return True

    def cancel(self, waiter: Waiter) -> None:
        """The request does not wait any longer."""
        if waiter.waiting:
            self._waiting.remove(waiter)
            self._unqueue(waiter)

    def _unqueue(self, waiter: Waiter) -> None:
        waiter.waiting = False
        self._pending[0] -= 1
        self.reactor.count(Counter.PENDING, -1)

    def _serve(self) -> None:
        """Give room to those that wait."""
        while self._waiting:
            connection = self.acquire(self.reactor.now)
            if connection is None:
                self._dial_more(len(self._waiting))
                return
            waiter = self._waiting.popleft()
            self._unqueue(waiter)
            waiter.on_connection(connection)

    def _fail_waiting(self, kind: Kind, detail: str) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            self._unqueue(waiter)
            waiter.on_unavailable(Failure(kind, Side.UPSTREAM, detail, retryable=True))

    # -- connections -------------------------------------------------------------------------

    def prepare(self) -> None:
        """Open the ``min_connections`` that are missing."""
        missing = self._cluster.min_connections - len(self.connections) - len(self._dials)
        for _ in range(missing):
            self._dial()

    def _dial_more(self, streams: int) -> None:
        """Dial as many connections as ``streams`` requests need, within ``max_connections``."""
        if self.http1:
            needed = streams
            most = _MAX_HTTP1_CONNECTIONS
        else:
            per_connection = min(_EXPECTED_STREAMS, self._cluster.max_streams_per_connection)
            needed = -(-streams // per_connection)
            needed -= sum(not connection.settled for connection in self.connections)
            most = _MAX_HTTP2_CONNECTIONS
        if self._cluster.max_connections is not None:
            most = self._cluster.max_connections
        room = most - len(self.connections)
        for _ in range(min(needed, room) - len(self._dials)):
            self._dial()

    def _dial(self) -> None:
        if self._closed or self.reactor.now < self.retry_at:
            return
        if not self.addresses:
            # The look-up is under way, and dials when it is done.
            return
        target = self.addresses[self._next_address % len(self.addresses)]
        dial: Dial | None = None

        def connected(sock: socket.socket) -> None:
            assert dial is not None
            self._dials.discard(dial)
            if self._tls is None:
                self._connected(self._transport(sock), None)
            else:
                self._secure(self._tls, sock, str(target))

        def failed(detail: str, timeout: bool) -> None:
            self._dial_failed(dial, f"{target}: {detail}", timeout)

        dial = Dial(self.reactor, target, self._cluster.connect_timeout_s, connected, failed)
        if dial.pending:
            self._dials.add(dial)

    def _transport(self, sock: socket.socket) -> Transport:
        return Transport(self.reactor, sock, self._settings.http2.stall_timeout_s, upstream=True)

    def _secure(self, tls: ClientContext, sock: socket.socket, target: str) -> None:
        """Shake hands on a new connection; what follows is by ALPN (RFC 7301)."""
        handshake: Handshake | None = None

        def done(transport: Transport) -> None:
            assert handshake is not None
            self._dials.discard(handshake)
            if self._cluster.protocol == "auto":
                self.http1 = handshake.session.alpn != b"h2"
            self._connected(transport, handshake.session)

        def failed(detail: str, timeout: bool) -> None:
            if handshake is not None:
                self._dials.discard(handshake)
            self._dial_failed(None, f"{target}: {detail}", timeout)

        address = cast("Address", self.endpoint.address)
        try:
            ticket = self._tickets.pop() if self._tickets else None
            session = tls.session(server_name(self._cluster, address), ticket)
        except ChannelError as error:
            sock.close()
            failed(str(error), False)
            return
        handshake = Handshake(
            self.reactor,
            sock,
            session,
            self._cluster.connect_timeout_s,
            self._settings.http2.stall_timeout_s,
            b"" if self._peers is None else self._proxy_header(self._peers),
            done,
            failed,
        )
        self._dials.add(handshake)

    def _connected(self, transport: Transport, session: ClientSession | None) -> None:
        now = self.reactor.now
        cluster = self._cluster
        self.reactor.count(Counter.UPSTREAM_CONNECTIONS_OPENED)
        self.reactor.count(Counter.UPSTREAM_CONNECTIONS_OPEN)
        retire_at = NEVER
        if cluster.max_connection_age_s is not None:
            retire_at = now + jittered(
                cluster.max_connection_age_s, cluster.max_connection_age_jitter
            )
        grace = cluster.max_connection_age_grace_s
        connection = UpstreamConnection(
            self,
            now,
            retire_at,
            NEVER if grace is None else grace,
            cluster.connect_timeout_s,
            cluster.max_streams_per_connection,
            self.http1,
        )
        codec = self._codec(connection, transport)
        connection.start(codec, transport)
        self.connections.append(connection)
        if session is not None:
            self._sessions[connection] = session
            transport.switch(codec, connection)
            codec.touch()
        else:
            if self._peers is not None:
                codec.out[:0] = self._proxy_header(self._peers)
                codec.touch()
            transport.start(codec, connection)
        if self.http1:
            self.proven()
            self._idle.append(connection)
            self._serve()
        else:
            self.reactor.note(now + cluster.connect_timeout_s)

    def _proxy_header(self, peers: Peers) -> bytes:
        write = write_v1 if self._cluster.proxy_protocol == "v1" else write_v2
        if peers.source is None or peers.destination is None:
            return write(None, None)
        return write(
            (peers.source.host, peers.source.port), (peers.destination.host, peers.destination.port)
        )

    def _codec(self, connection: UpstreamConnection, transport: Transport) -> Codec:
        reactor = self.reactor
        if self.http1:
            return Client(
                self._settings.http1,
                self._settings.http2,
                connection,
                reactor.budget,
                reactor.flush_list,
                transport,
                reactor.now,
            )
        codec = Connection(
            True,
            self._settings.http2,
            connection,
            reactor.budget,
            reactor.flush_list,
            transport,
            reactor.now,
        )
        if self._cluster.keepalive_interval_s is not None:
            codec.keepalive_interval_s = self._cluster.keepalive_interval_s
            codec.keepalive_timeout_s = self._cluster.keepalive_timeout_s
        return codec

    def _dial_failed(self, dial: Dial | None, detail: str, timeout: bool) -> None:
        if dial is not None:
            self._dials.discard(dial)
        self.reactor.count(
            Counter.UPSTREAM_CONNECT_TIMEOUT if timeout else Counter.UPSTREAM_CONNECT_FAILED
        )
        self._next_address += 1
        self._failed(detail, Kind.CONNECT_TIMEOUT if timeout else Kind.CONNECT_FAILED)

    def _failed(self, detail: str, kind: Kind) -> None:
        """A connection could not be had: wait before the next one is tried."""
        self.last_error = detail
        self.retry_at = self.reactor.now + self._backoff.failed()
        self.reactor.note(self.retry_at)
        if any(connection.settled for connection in self.connections):
            # The endpoint lives; it just does not take one more connection now.
            return
        self.endpoint.available = False
        self._fail_waiting(kind, f"cannot connect to {detail}")
        self._forget_if_unused()

    # What a connection tells.

    def speaks_http1(self) -> None:
        """The endpoint answered in HTTP/1.1: ask it so, unless the cluster says otherwise."""
        if self._cluster.protocol == "auto":
            self.http1 = True
            self._known = True
        else:
            self.last_error = (
                f"{self.endpoint.key} speaks HTTP/1.1, and clusters.{self._cluster.name}.protocol "
                f'is "{self._cluster.protocol}"'
            )

    def proven(self) -> None:
        """A new connection works: an HTTP/2 endpoint has sent its SETTINGS."""
        if not self.http1:
            self._known = True
        self._backoff.succeeded()
        self.retry_at = 0.0
        self.endpoint.available = True
        if self._cluster.idle_timeout_s is not None:
            self.reactor.note(self.reactor.now + self._cluster.idle_timeout_s)

    def released(self, connection: UpstreamConnection) -> None:
        """A stream ended, or the peer allows more."""
        if self._waiting:
            self._serve()

    def _take_ticket(self, connection: UpstreamConnection) -> None:
        """Keep what resumes a session: it comes after the handshake (RFC 8446 section 4.6.1)."""
        session = self._sessions.pop(connection, None)
        ticket = None if session is None else session.ticket()
        if ticket is not None:
            self._tickets.append(ticket)
            del self._tickets[:-MAX_TICKETS]

    def became_idle(self, connection: UpstreamConnection) -> None:
        """It has no stream: keep it for ``idle_timeout``, unless too many are idle already."""
        if self._sessions:
            self._take_ticket(connection)
        until = self.idle_until(connection)
        self.reactor.note(until)
        if connection.http1:
            self._known = self._known or connection.answered
            self._idle.append(connection)
            if self._waiting:
                self._serve()
        most = max(self._cluster.max_idle, self._cluster.min_connections)
        if connection.http1:
            if len(self._idle) > most:
                self.reactor.count(Counter.UPSTREAM_CLOSED_IDLE)
                self._idle[0].retire()
            return
        if len(self.connections) <= most:
            return
        idle = [c for c in self.connections if not c.streams]
        if len(idle) > most:
            self.reactor.count(Counter.UPSTREAM_CLOSED_IDLE)
            min(idle, key=lambda c: c.idle_since).retire()

    def idle_until(self, connection: UpstreamConnection) -> float:
        """When an idle connection is to be closed."""
        timeout = self._cluster.idle_timeout_s
        if timeout is None or len(self.connections) <= self._cluster.min_connections:
            return NEVER
        return connection.idle_since + timeout

    def gone_away(self, code: int, detail: str) -> None:
        """A GOAWAY came."""
        if code:
            self.last_error = f"{self.endpoint.key}: GOAWAY with code {code} {detail}".rstrip()

    def retired(self, connection: UpstreamConnection) -> None:
        """It takes no more streams."""
        if connection in self.connections:
            self._forget(connection)
            self.retiring.add(connection)
            self._lost(connection, "GOAWAY before SETTINGS")

    def closed(self, connection: UpstreamConnection, detail: str) -> None:
        """Its socket is gone."""
        if connection in self.connections:
            self._forget(connection)
            self._lost(connection, detail)
        self.retiring.discard(connection)
        self._forget_if_unused()

    def _forget(self, connection: UpstreamConnection) -> None:
        self.connections.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._sessions:
            self._take_ticket(connection)

    def _lost(self, connection: UpstreamConnection, detail: str) -> None:
        if self._closed:
            return
        if not self._known and not connection.answered:
            # It understood nothing of what was said to it: try the other protocol, at once the
            # first time, and then as after any connection that could not be had.
            self.http1 = not connection.http1
            self._tried_other = not self._tried_other
            if self._tried_other:
                if self._waiting:
                    self._dial_more(len(self._waiting))
                return
        fresh = connection.http1 and not connection.used
        if fresh and self.reactor.now - connection.idle_since >= _FRESH_S:
            fresh = False
        if fresh or not connection.settled:
            # A proxy without a backend accepts and closes: to dial at once would never end.
            self._failed(f"{self.endpoint.key}: {detail}", Kind.CONNECT_FAILED)
        elif self._waiting:
            self._dial_more(len(self._waiting))
        else:
            self.prepare()

    # -- time and end ------------------------------------------------------------------------

    def check(self, now: float) -> float:
        """Waiting requests whose time is over, and a dial after a backoff; the next deadline."""
        earliest = NEVER
        for waiter in [w for w in self._waiting if w.wait_until <= now]:
            if not waiter.waiting:
                continue
            self.cancel(waiter)
            self.reactor.count(Counter.PENDING_TIMEOUT)
            if self._dials:
                kind, what = Kind.CONNECT_TIMEOUT, "was not connected in time"
            else:
                kind, what = Kind.PENDING_TIMEOUT, "had no connection with room in time"
            detail = f"{self.endpoint.key} {what}"
            if self.last_error and not self.endpoint.available:
                detail = f"{detail}; last error: {self.last_error}"
            waiter.on_unavailable(Failure(kind, Side.UPSTREAM, detail, retryable=True))
        for waiter in self._waiting:
            earliest = min(earliest, waiter.wait_until)
        if self.retry_at:
            if now < self.retry_at:
                return min(earliest, self.retry_at)
            self.retry_at = 0.0
            # Somebody asked for the endpoint since it failed: find out whether it is back.
            if self._waiting:
                self._dial_more(len(self._waiting))
            elif not self.endpoint.available or self._wanted:
                self._wanted = False
                if not self.connections and not self._dials:
                    self._dial()
            self.prepare()
            if self.retry_at:
                earliest = min(earliest, self.retry_at)
        return earliest

    def drain(self) -> None:
        """The endpoint was removed: finish what is open, take nothing new."""
        if self._closed:
            return
        self._closed = True
        if self._peers is None:
            self.endpoint.draining = True
        self.reactor.remove_check(self.check)
        self._fail_waiting(Kind.NO_ENDPOINT, f"{self.endpoint.key} was removed")
        for dial in list(self._dials):
            dial.cancel()
        self._dials.clear()
        for connection in list(self.connections):
            connection.retire()
        for pool in list(self._clients):
            pool.drain()

    def __repr__(self) -> str:
        state = "" if self.endpoint.available else " unavailable"
        return (
            f"<Pool {self.endpoint.key}{state} connections={self.connections} "
            f"retiring={len(self.retiring)} dials={len(self._dials)} waiting={len(self._waiting)}>"
        )
