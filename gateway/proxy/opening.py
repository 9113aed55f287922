"""The first octets of a client's connection: who it is, and what it speaks.

A connection begins with a PROXY protocol header where the listener says that its peer sends one
(``proxy_protocol_from``). Then the preface of HTTP/2 (RFC 9113 section 3.4) tells the two protocols
apart: what begins with it is HTTP/2 by prior knowledge, what differs from it in any octet is
HTTP/1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.config.address import TcpAddress
from gateway.net.addresses import Peers
from gateway.net.networks import Networks
from gateway.net.transport import Transport
from gateway.proxy.downstream import Downstream, Origin, Site
from gateway.wire.codec import NEVER, Codec
from gateway.wire.frames import PREFACE
from gateway.wire.proxy_protocol import ProxyHeaderError, ProxyHeaderReader


class Entry(NamedTuple):
    """What a listener says of its connections: a part of :class:`gateway.config.Listener`."""

    idle_timeout_s: float | None
    hops: Networks
    proxies: Networks


class Opening(Codec):
    """The codec of a connection until it is known what it speaks."""

    def __init__(
        self,
        site: Site,
        transport: Transport,
        entry: Entry,
        client: str,
        peers: Peers,
        released: Callable[[], None],
    ) -> None:
        http2 = site.settings.http2
        reactor = site.reactor
        self.begin_codec(False, http2.max_connection_buffer, reactor.flush_list, transport)
        self.deadline = reactor.now + http2.preface_timeout_s
        self._site = site
        self._transport = transport
        self._entry = entry
        self._client = client
        self._peers = peers
        self._released = released
        self._proxy = ProxyHeaderReader() if client in entry.proxies else None
        self._data = b""
        site.openings.add(self)
        transport.start(self, _Above(self))

    def receive(self, data: bytes, now: float) -> None:
        """Collect until it is known who speaks what."""
        if self._proxy is not None:
            try:
                header = self._proxy.feed(data)
            except ProxyHeaderError as error:
                self._site.reactor.count_name("proxy_header_error")
                self._transport.close(f"no PROXY protocol header: {error}")
                return
            if header is None:
                return
            self._proxy = None
            data = header.rest
            if header.source is not None and header.destination is not None:
                source, destination = TcpAddress(*header.source), TcpAddress(*header.destination)
                self._client = source.host
                self._peers = Peers(source, destination)
        data = self._data + data
        if len(data) < len(PREFACE) and PREFACE.startswith(data):
            self._data = data
            return
        self._site.openings.discard(self)
        origin = Origin(
            self._client.encode(),
            self._peers,
            self._entry.hops,
            self._client in self._entry.hops,
        )
        downstream = Downstream(
            self._site,
            self._transport,
            origin,
            http1=not data.startswith(PREFACE),
            idle_timeout_s=self._entry.idle_timeout_s,
            released=self._released,
        )
        downstream.codec.receive(data, now)

    def check(self, now: float) -> None:
        """Close a connection on which too little comes."""
        if now >= self.deadline:
            self.deadline = NEVER
            self._site.reactor.count_name("preface_timeout")
            self._transport.close("nothing to tell the protocol by within http2.preface_timeout")

    def gone(self) -> None:
        """The socket is closed."""
        self._site.openings.discard(self)
        self._released()

    def end(self) -> None:
        """The process drains: nothing has begun here."""
        self._transport.close("the gateway is shutting down")


class _Above:
    """The peer of a connection that is not known yet: all there is to tell is its end."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def closed(self, detail: str) -> None:
        self._opening.gone()

    def check(self, now: float) -> float:
        return NEVER
