"""The client side: sessions with endpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from OpenSSL import SSL, crypto

from gateway.tls import ocsp
from gateway.tls.certificate import Certificate
from gateway.tls.channel import ChannelError
from gateway.tls.session import ClientSession


@dataclass(frozen=True)
class ClientSettings:
    """``ca`` are the authorities trusted; without any, those of the system. Without ``verify``
    anybody may be the endpoint. ``require_staple`` demands a good OCSP response with the
    certificate. ``certificate`` is what we prove to be, where the endpoint asks for it."""

    protocols: tuple[bytes, ...] = (b"h2", b"http/1.1")
    verify: bool = True
    ca: tuple[x509.Certificate, ...] = ()
    certificate: Certificate | None = None
    require_staple: bool = False
    tls12: bool = True


class ClientContext:
    """Makes sessions with the endpoints of one cluster. ``now`` tells the time of the day."""

    def __init__(self, settings: ClientSettings, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now
        self._context = _context(settings)
        if settings.require_staple:
            self._context.set_ocsp_client_callback(self._stapled)

    def session(self, name: str, ticket: SSL.Session | None = None) -> ClientSession:
        """Begin a session with an endpoint whose certificate is for ``name`` (a host name or an IP
        address). ``ticket`` resumes an earlier one. Raises ChannelError."""
        connection = SSL.Connection(self._context)
        connection.set_connect_state()
        if not _is_address(name):
            connection.set_tlsext_host_name(name.encode("idna"))
        if ticket is not None:
            connection.set_session(ticket)
        session = ClientSession(self, connection, name)
        if self._settings.verify:
            session.expect_name(name)
        if self._settings.require_staple:
            connection.request_ocsp()
            connection.set_app_data(session)
        session.begin()
        return session

    def _stapled(self, connection: SSL.Connection, response: bytes, data: object) -> bool:
        session = connection.get_app_data()
        if isinstance(session, ClientSession):
            session.staple = response
        return True

    def check(self, session: ClientSession) -> None:
        """What OpenSSL does not check at the end of a handshake. Raises ChannelError.

        A resumed session has no new certificate: it was checked when it was made.
        """
        if not self._settings.require_staple or session.resumed:
            return
        if not session.staple:
            raise ChannelError("the endpoint stapled no OCSP response")
        chain = session.peer_chain()
        if len(chain) < 2:
            raise ChannelError("no issuer to verify the stapled OCSP response with")
        try:
            ocsp.verify(session.staple, chain[0], chain[1], self._now())
        except ocsp.OcspError as error:
            raise ChannelError(f"the stapled OCSP response: {error}") from None


def _context(settings: ClientSettings) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION if settings.tls12 else SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    if settings.protocols:
        context.set_alpn_protos(list(settings.protocols))
    if settings.verify:
        context.set_verify(SSL.VERIFY_PEER)
        if settings.ca:
            store = context.get_cert_store()
            assert store is not None
            for ca in settings.ca:
                store.add_cert(crypto.X509.from_cryptography(ca))
        else:
            context.set_default_verify_paths()
    if settings.certificate is not None:
        context.use_certificate(settings.certificate.leaf)
        for issuer in settings.certificate.chain:
            context.add_extra_chain_cert(issuer)
        context.use_privatekey(settings.certificate.key)
    return context


def _is_address(name: str) -> bool:
    """SNI takes host names only (RFC 6066 section 3)."""
    return ":" in name or name.replace(".", "").isdigit()
