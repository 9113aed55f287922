"""One TLS session on memory: the :class:`gateway.tls.channel.Channel` of both ends."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cryptography import x509

from gateway.tls import bindings
from gateway.tls.channel import ChannelError
from gateway.tls.client_hello import ClientHello, ClientHelloError, ClientHelloReader, alert_record

if TYPE_CHECKING:
    from OpenSSL import SSL

    from gateway.tls.client import ClientContext
    from gateway.tls.server import ServerContext


class _Session:
    """What both ends have in common. ``resumed`` and the like are known once ``established``."""

    early_octets = 0

    def __init__(self) -> None:
        self.peer_closed = False
        self.established = False
        self.resumed = False
        self._connection: SSL.Connection | None = None
        self._pipe: bindings.Pipe | None = None
        self._outgoing = b""
        self._closed = False

    # What a transport asks.

    @property
    def writable(self) -> bool:
        """Whether there are keys to seal with."""
        return self.established

    @property
    def alpn(self) -> bytes | None:
        """The protocol chosen, None if none was."""
        if self._connection is None:
            return None
        return self._connection.get_alpn_proto_negotiated() or None

    def seal(self, plaintext: bytes | bytearray) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        pipe = self._pipe
        assert pipe is not None
        pipe.write(plaintext)
        if pipe.failed:
            raise self._lost("sealing failed")
        if self._outgoing:
            return self.outgoing()
        return pipe.take()

    def outgoing(self) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        octets, self._outgoing = self._outgoing, b""
        if self._pipe is not None:
            octets += self._pipe.take()
        return octets

    def close(self) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        if self._pipe is not None and self.established and not self._closed:
            self._closed = True
            self._pipe.say_goodbye()
        return self.outgoing()

    def trim(self) -> None:
        """See :class:`gateway.tls.channel.Channel`."""
        if self._pipe is not None and self.established:
            self._pipe.renew_memory()

    # What is to be known of the session.

    @property
    def version(self) -> str:
        """``TLSv1.3`` or ``TLSv1.2``; empty before the handshake."""
        return self._connection.get_protocol_version_name() if self._connection else ""

    @property
    def cipher(self) -> str:
        """The cipher suite's name."""
        return (self._connection.get_cipher_name() or "") if self._connection else ""

    @property
    def group(self) -> str:
        """The name of the group of the key exchange."""
        return (self._connection.get_group_name() or "") if self._connection else ""

    def peer_certificate(self) -> x509.Certificate | None:
        """The certificate that the peer proved to have, None without one. Also when resumed."""
        if self._connection is None:
            return None
        found = self._connection.get_peer_certificate(as_cryptography=True)
        return found if isinstance(found, x509.Certificate) else None

    # The handshake's end, the stream, the failure.

    def _read(self, pipe: bindings.Pipe) -> bytes:
        """The plaintext that is there."""
        first = pipe.read()
        if first is not None and not pipe.has_more():
            return first
        parts = []
        while first is not None:
            parts.append(first)
            first = pipe.read() if pipe.has_more() else None
        if pipe.ended:
            self.peer_closed = True
        elif pipe.failed:
            raise self._lost("a broken record")
        return b"".join(parts)

    def _lost(self, what: str) -> ChannelError:
        """The error to raise; what OpenSSL has to say to the peer is in ``outgoing``."""
        why = bindings.reasons()
        if self._pipe is not None:
            self._outgoing += self._pipe.take()
            verify = self._pipe.verify_error()
            if verify and "certificate" in why:
                why = f"{why}: {verify}"
        return ChannelError(f"{what}: {why}" if why else what)


class ServerSession(_Session):
    """The gateway's end of a client's session. Made by :meth:`ServerContext.session`.

    ``server_name`` is what the client asked for (empty: for none).
    """

    def __init__(self, context: ServerContext) -> None:
        super().__init__()
        self._context = context
        self._reader: ClientHelloReader | None = ClientHelloReader()
        self._early = False
        self.early_octets = 0
        self.early_data = False
        self.server_name = ""

    @property
    def writable(self) -> bool:
        """Whether there are keys to seal with."""
        return self.established or self.early_data

    @property
    def greeted(self) -> bool:
        """Whether a whole ClientHello came."""
        return self._reader is None

    def receive(self, ciphertext: bytes | memoryview) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        pipe = self._pipe
        if pipe is not None and self.established:
            pipe.feed(ciphertext)
            return self._read(pipe)
        if self._reader is not None:
            try:
                found = self._reader.feed(ciphertext)
            except ClientHelloError as error:
                raise self._refused(error) from None
            if found is None:
                return b""
            hello, ciphertext = found
            self._reader = None
            pipe = self._begin(hello)
        assert pipe is not None
        pipe.feed(ciphertext)
        return self._shake_hands(pipe)

    def _begin(self, hello: ClientHello) -> bindings.Pipe:
        self.server_name = hello.server_name
        try:
            self._connection, self._early = self._context.connection(hello)
        except ClientHelloError as error:
            raise self._refused(error) from None
        self._connection.set_accept_state()
        self._pipe = bindings.Pipe(self._connection)
        return self._pipe

    def _shake_hands(self, pipe: bindings.Pipe) -> bytes:
        early = b""
        self.early_octets = 0
        while self._early:
            piece = pipe.read_early()
            if piece is None:
                if pipe.failed or pipe.ended:
                    raise self._lost("the handshake failed")
                self.early_octets = len(early)
                return early
            octets, ended = piece
            if octets:
                self.early_data = True
                early += octets
            if ended:
                self._early = False
        self.early_octets = len(early)
        if not pipe.shake_hands():
            if pipe.failed or pipe.ended:
                raise self._lost("the handshake failed")
            return early
        self.established = True
        self.resumed = pipe.reused()
        return early + self._read(pipe)

    def seal(self, plaintext: bytes | bytearray) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        if self.established:
            return super().seal(plaintext)
        assert self._pipe is not None
        self._pipe.write_early(plaintext)
        if self._pipe.failed:
            raise self._lost("sealing failed")
        return self.outgoing()

    def _refused(self, error: ClientHelloError) -> ChannelError:
        if error.alert >= 0:
            self._outgoing += alert_record(error.alert)
        return ChannelError(str(error))


class ClientSession(_Session):
    """The gateway's end of a session with an endpoint. Made by :meth:`ClientContext.session`."""

    def __init__(self, context: ClientContext, connection: SSL.Connection, host: str) -> None:
        super().__init__()
        self._context = context
        self.host = host
        self._connection = connection
        self._pipe = bindings.Pipe(connection)
        self.staple = b""

    def begin(self) -> None:
        """Make the ClientHello. Raises ChannelError."""
        assert self._pipe is not None
        self._pipe.shake_hands()
        if self._pipe.failed:
            raise self._lost("the handshake could not begin")

    def expect_name(self, name: str) -> None:
        """The endpoint's certificate must be for ``name``."""
        assert self._pipe is not None
        self._pipe.expect_name(name)

    def receive(self, ciphertext: bytes | memoryview) -> bytes:
        """See :class:`gateway.tls.channel.Channel`."""
        pipe = self._pipe
        assert pipe is not None
        pipe.feed(ciphertext)
        if self.established:
            return self._read(pipe)
        if not pipe.shake_hands():
            if pipe.ended:
                self.peer_closed = True
            if pipe.failed or pipe.ended:
                raise self._lost("the TLS handshake failed")
            return b""
        self.resumed = pipe.reused()
        self._context.check(self)
        self.established = True
        return self._read(pipe)

    def peer_chain(self) -> list[x509.Certificate]:
        """The verified chain, leaf first; what the peer sent where nothing was verified."""
        assert self._connection is not None
        chain = self._connection.get_verified_chain(as_cryptography=True)
        if not chain:
            chain = self._connection.get_peer_cert_chain(as_cryptography=True)
        return list(chain or ())

    def ticket(self) -> SSL.Session | None:
        """What resumes this session: the last ticket that came, to be used once."""
        assert self._connection is not None
        session = self._connection.get_session()
        return None if session is None else bindings.copy_session(session)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate's DER, in hexadecimal."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
