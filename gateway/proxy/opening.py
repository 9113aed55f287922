"""The first octets of a client's connection: who it is, and what it speaks.

A connection begins with a PROXY protocol header where the listener says that its peer sends one
(``proxy_protocol_from``). Then the preface of HTTP/2 (RFC 9113 section 3.4) tells the two protocols
apart: what begins with it is HTTP/2 by prior knowledge, what differs from it in any octet is
HTTP/1.1. With TLS it is the protocol that ALPN chose (RFC 7301), and only a client that offered
none is told by its preface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gateway.config.address import TcpAddress
from gateway.net.addresses import Peers
from gateway.net.networks import Networks
from gateway.net.transport import Transport
from gateway.proxy.downstream import Downstream, Origin, Site
from gateway.telemetry import Counter
from gateway.wire.codec import NEVER, Codec
from gateway.wire.frames import PREFACE
from gateway.wire.proxy_protocol import ProxyHeaderError, ProxyHeaderReader

if TYPE_CHECKING:  # a gateway without TLS does not load OpenSSL
    from gateway.proxy.secure import TlsEntry
    from gateway.tls.session import ServerSession


class Entry(NamedTuple):
    """What a listener says of its connections: a part of :class:`gateway.config.Listener`."""

    idle_timeout_s: float | None
    hops: Networks
    proxies: Networks
    tls: TlsEntry | None = None


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
        self._session: ServerSession | None = None
        site.openings.add(self)
        if self._proxy is None and entry.tls is not None:
            self._begin_tls(entry.tls)
        transport.start(self, _Above(self))

    def _begin_tls(self, tls: TlsEntry) -> None:
        session = self._session = tls.context.session()
        self._transport.secure(session)
        self.deadline = self._site.reactor.now + tls.handshake_timeout_s
        self._site.reactor.count(Counter.TLS_HANDSHAKES_OPEN)
        evicted = tls.handshakes.begin(self)
        if evicted is not None:
            self._site.reactor.count(Counter.TLS_HANDSHAKES_EVICTED)
            evicted.close("tls.max_handshakes are under way")

    def close(self, detail: str) -> None:
        """Close the connection."""
        self._transport.close(detail)

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
            if self._entry.tls is not None:
                self._begin_tls(self._entry.tls)
                if data:
                    self._transport.unseal(data, now)
                return
        data = self._data + data
        protocol = self._session.alpn if self._session is not None else None
        if protocol is None:
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._data = data
                return
            http1 = not data.startswith(PREFACE)
        else:
            http1 = protocol != b"h2"
        self._site.openings.discard(self)
        downstream = Downstream(
            self._site,
            self._transport,
            self._origin(),
            http1=http1,
            idle_timeout_s=self._entry.idle_timeout_s,
            released=self._end,
            secured=self.secured,
            # Early data comes before the handshake is over.
            handshake_until=NEVER if self._is_secure() else self.deadline,
        )
        downstream.codec.receive(data, now)

    def _is_secure(self) -> bool:
        return self._session is None or self._session.established

    def _origin(self) -> Origin:
        proof = b""
        certificate = None if self._session is None else self._session.peer_certificate()
        if certificate is not None:
            from gateway.proxy.client_certificate import forwarded_client_cert

            proof = forwarded_client_cert(certificate)
        return Origin(
            self._client.encode(),
            self._peers,
            self._entry.hops,
            self._client in self._entry.hops,
            b"http" if self._session is None else b"https",
            proof,
        )

    def secured(self, now: float) -> None:
        """The TLS handshake is complete."""
        self._handshake_over()
        reactor = self._site.reactor
        reactor.count(Counter.TLS_HANDSHAKES)
        if self._session is not None and self._session.resumed:
            reactor.count(Counter.TLS_RESUMPTIONS)
        self.deadline = now + self._site.settings.http2.preface_timeout_s

    def _handshake_over(self) -> None:
        tls, self._entry = self._entry.tls, self._entry._replace(tls=None)
        if self._session is not None and tls is not None:
            tls.handshakes.end(self)
            self._site.reactor.count(Counter.TLS_HANDSHAKES_OPEN, -1)

    def _end(self) -> None:
        self._handshake_over()
        self._session = None
        self._released()

    def check(self, now: float) -> None:
        """Close a connection on which too little comes."""
        if now >= self.deadline:
            self.deadline = NEVER
            if self._is_secure():
                self._site.reactor.count_name("preface_timeout")
                detail = "nothing to tell the protocol by within http2.preface_timeout"
            else:
                self._site.reactor.count_name("tls_handshake_timeout")
                detail = "no TLS handshake within tls.handshake_timeout"
            self._transport.close(detail)

    def gone(self) -> None:
        """The socket is closed."""
        self._site.openings.discard(self)
        self._end()

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

    def secured(self, now: float) -> None:
        self._opening.secured(now)
