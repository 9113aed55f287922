"""One worker process: a Trio program around one reactor."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from gateway.config import Config, Listener
from gateway.net.addresses import Peers, peers_of
from gateway.net.listener import Acceptor
from gateway.net.loop import serve
from gateway.net.networks import Networks
from gateway.net.reactor import Reactor
from gateway.net.transport import LINGER_S, Transport
from gateway.proxy.downstream import Site
from gateway.proxy.opening import Entry, Opening
from gateway.proxy.secure import Handshakes, TlsEntry
from gateway.supervisor.lines import log
from gateway.telemetry import Row, SharedMemory
from gateway.upstream.cluster import Cluster
from gateway.upstream.resolver import keep_resolved, resolve_all
from gateway.wire.codec import HeldOctets

if TYPE_CHECKING:  # a gateway without TLS does not load OpenSSL
    from gateway.certificates.contexts import Contexts

DRAIN_POLL_S: Final = 0.02
GC_THRESHOLDS: Final = (20_000, 50, 100)
CLOSE_TIMEOUT_S: Final = 1.0 + LINGER_S


class Worker:
    """What one worker is made of. ``sockets`` are its listening sockets, one per listener; ``tls``
    are the contexts of those that speak TLS."""

    def __init__(
        self,
        settings: Config,
        sockets: Sequence[socket.socket],
        row: Row,
        tls: Contexts | None = None,
    ) -> None:
        self.settings = settings
        self._tls = tls
        self._row = row
        self.reactor = Reactor(HeldOctets(settings.gateway.max_buffered_bytes), row)
        self.clusters = {
            name: Cluster(self.reactor, row, cluster, settings)
            for name, cluster in settings.clusters.items()
        }
        self.site = Site(self.reactor, settings, self.clusters)
        # Only upstream PROXY protocol headers need both ends of each client's connection.
        self._wants_peers = any(
            cluster.proxy_protocol is not None for cluster in settings.clusters.values()
        )
        self._sockets = sockets
        self._acceptors: list[Acceptor] = []

    async def run(self, ready: trio.Event) -> None:
        """Serve until cancelled; ``ready`` is set when connections are accepted."""
        async with trio.open_nursery() as nursery:
            for cluster in self.clusters.values():
                await resolve_all(cluster)
                nursery.start_soon(keep_resolved, cluster)
                cluster.prepare()
            await self._keep_certificates(nursery)
            for listener, sock in zip(self.settings.listeners, self._sockets, strict=True):
                entry = Entry(
                    listener.idle_timeout_s,
                    Networks(listener.trusted_hops),
                    Networks(listener.proxy_protocol_from),
                    self._tls_entry(listener),
                )
                accepted = partial(self._accepted, len(self._acceptors), entry)
                self._acceptors.append(
                    Acceptor(self.reactor, sock, listener.max_connections, accepted)
                )
            nursery.start_soon(serve, self.reactor)
            ready.set()

    async def _keep_certificates(self, nursery: trio.Nursery) -> None:
        if self._tls is None:
            return
        from gateway.certificates.keeper import Keeper

        keeper = Keeper(self.settings, self._tls, self._row, log)
        await keeper.prepare()
        nursery.start_soon(keeper.run)

    def _tls_entry(self, listener: Listener) -> TlsEntry | None:
        if self._tls is None or listener.tls is None:
            return None
        table = self.settings.tls[listener.tls]
        return TlsEntry(
            self._tls.by_name[listener.tls],
            table.handshake_timeout_s,
            Handshakes(table.max_handshakes),
        )

    def _accepted(self, index: int, entry: Entry, sock: socket.socket, client: str) -> None:
        transport = Transport(
            self.reactor, sock, self.settings.http2.stall_timeout_s, upstream=False
        )
        released = self._acceptors[index].released
        peers = peers_of(sock) if self._wants_peers else Peers()
        Opening(self.site, transport, entry, client, peers, released)

    async def drain(self) -> None:
        """Accept no more and finish what is open, within ``gateway.drain_timeout``."""
        for acceptor in self._acceptors:
            acceptor.close()
        self.site.drain()
        with trio.move_on_after(self.settings.gateway.drain_timeout_s):
            # A look every 20 ms while draining: an event would cost every connection.
            while self.site.connections:  # noqa: ASYNC110
                await trio.sleep(DRAIN_POLL_S)
        self.site.end_all()
        pools = [pool for cluster in self.clusters.values() for pool in cluster.pools.values()]
        for cluster in self.clusters.values():
            cluster.close()
        with trio.move_on_after(CLOSE_TIMEOUT_S):
            while any(pool.closing for pool in pools):  # noqa: ASYNC110
                await trio.sleep(DRAIN_POLL_S)


async def _main(worker: Worker, ready_fd: int) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run, ready)
            await ready.wait()
            os.write(ready_fd, b"1")
            os.close(ready_fd)
            async for _ in signals:
                break
            await worker.drain()
            nursery.cancel_scope.cancel()


def run(
    settings: Config,
    sockets: list[socket.socket],
    shared: SharedMemory,
    slot: int,
    ready_fd: int,
    tls: Contexts | None = None,
) -> int:
    """Serve until SIGTERM, then drain; the exit code. ``1`` goes to ``ready_fd`` when accepting."""
    # Exchanges and streams hold no cycles, so the collector finds little: let it look seldom.
    gc.set_threshold(*GC_THRESHOLDS)
    worker = Worker(settings, sockets, shared.row(slot), tls)
    trio.run(_main, worker, ready_fd)
    worker.reactor.close()
    return 0
