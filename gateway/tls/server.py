"""The server side: contexts made from settings, and the choice among them for each client.

A connection is made from the context of a *generation*, which holds the ticket keys, and then gets
the context of the *certificate* that the client's server name asks for. OpenSSL encrypts tickets
with the keys of the context that a connection began with, whatever it changes to, so certificates
can be replaced at any time and tickets outlive them.

**Generations.** The bindings have no call that reads or sets ticket keys
(``SSL_CTX_set_tlsext_ticket_keys``, ``SSL_CTX_set_tlsext_ticket_key_evp_cb``). OpenSSL makes random
ones for each context, and processes forked later share them. So a number of contexts is made
before the fork, one for each period to come, and all workers go from one to the next by the same
clock. A ticket begins with the name of its key (RFC 5077 section 4), which chooses the generation
it belongs to: the present one, the one before it, or the next, should another worker be ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cryptography import x509
from OpenSSL import SSL, crypto

from gateway.errors import GatewayError
from gateway.tls import bindings
from gateway.tls.certificate import Certificate
from gateway.tls.client_hello import (
    INTERNAL_ERROR,
    NO_APPLICATION_PROTOCOL,
    UNRECOGNIZED_NAME,
    ClientHello,
    ClientHelloError,
    ClientHelloReader,
)
from gateway.tls.session import ServerSession

ClientAuth = Literal["none", "optional", "required"]

_KEY_NAME: Final = 16
_SESSION_CONTEXT: Final = b"gateway"
# AES-128 first: the strength of P-256 and X25519, and a full handshake takes 0.78 of the server's
# CPU that it takes with AES-256 and SHA-384, which OpenSSL would put first.
TLS13_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
# AEAD with forward secrecy only (RFC 9325 section 4.2).
TLS12_CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)


@dataclass(frozen=True)
class ServerSettings:
    """What holds for all certificates of a listener.

    ``tickets`` is how many each full handshake is to send, as OpenSSL was told when it was loaded
    (:mod:`gateway.tls.openssl_conf`). Lifetimes are in seconds. ``early_octets`` is the most early
    data taken, 0 for none.
    """

    tls12: bool = False
    suites: tuple[str, ...] = ()
    protocols: tuple[bytes, ...] = (b"h2", b"http/1.1")
    client_auth: ClientAuth = "none"
    client_ca: tuple[x509.Certificate, ...] = ()
    client_crls: tuple[x509.CertificateRevocationList, ...] = ()
    strict_sni: bool = False
    tickets: int = 2
    ticket_lifetime_s: int = 86_400
    early_octets: int = 0
    key_log: Callable[[bytes], None] | None = field(default=None, compare=False)


class ServerContext:
    """Makes sessions. See the module.

    ``period_s`` is how long each of the ``generations`` is used, from ``started_at`` on (seconds of
    a clock that all workers share). ``accept_early`` is asked with the random of a ClientHello that
    comes with early data: whether it was never seen before.

    Raises:
        OpenSSL.SSL.Error: OpenSSL refuses a setting or a certificate.
        GatewayError: it makes no tickets although it was told to.
    """

    def __init__(
        self,
        settings: ServerSettings,
        certificates: Sequence[Certificate],
        *,
        generations: int = 1,
        period_s: float = float("inf"),
        started_at: float = 0.0,
    ) -> None:
        self.settings = settings
        self.period_s = period_s
        self.started_at = started_at
        self.accept_early: Callable[[bytes], bool] = _refuse
        self.certificates: tuple[Certificate, ...] = ()
        self._exact: dict[str, list[_Served]] = {}
        self._wildcard: dict[str, list[_Served]] = {}
        self._default: list[_Served] = []
        self.replace_certificates(certificates)
        # By number; those that are over are forgotten, and their keys with them.
        self._contexts = {number: self._context(None) for number in range(max(generations, 1))}
        self._names: dict[bytes, int] = {}
        self._current = -1
        self._alone = False
        self.rotate(started_at)
        if settings.tickets and not self._names:
            raise GatewayError("OpenSSL gave no session ticket in a handshake with ourselves")

    # -- certificates ------------------------------------------------------------------------

    def replace_certificates(
        self, certificates: Sequence[Certificate], settings: ServerSettings | None = None
    ) -> None:
        """Serve these from the next handshake on; the first is for clients that name no other.

        Raises ``OpenSSL.SSL.Error`` if OpenSSL refuses one, and nothing changes.
        """
        before = self.settings
        if settings is not None:
            self.settings = settings
        try:
            served = [_Served(item, self._context(item)) for item in certificates]
        except BaseException:
            self.settings = before
            raise
        exact: dict[str, list[_Served]] = {}
        wildcard: dict[str, list[_Served]] = {}
        for one in served:
            for name in one.certificate.names:
                if name.startswith("*."):
                    wildcard.setdefault(name[2:], []).append(one)
                else:
                    exact.setdefault(name, []).append(one)
        self.certificates = tuple(certificates)
        self._exact, self._wildcard = exact, wildcard
        # Those with the names of the first, so that both kinds of keys serve clients without SNI.
        self._default = [
            one for one in served if one.certificate.names == served[0].certificate.names
        ]

    def choose(self, name: str, ecdsa: bool) -> Certificate | None:
        """The certificate for a server name, for a client that takes keys of that kind; None if
        none is for that name."""
        served = self._find(name)
        return _suited(served, ecdsa).certificate if served else None

    def _find(self, name: str) -> list[_Served] | None:
        if not name:
            return None
        found = self._exact.get(name)
        if found is None:
            # A wildcard stands for one label, the leftmost (RFC 9525 section 6.3).
            found = self._wildcard.get(name.partition(".")[2])
        return found

    # -- generations -------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of the present one."""
        return self._current

    @property
    def alone(self) -> bool:
        """Whether those made before the fork are used up: other workers' tickets are strange."""
        return self._alone

    def rotate(self, now: float) -> float:
        """Go to the generation of time ``now`` and forget what is over; when to come again."""
        number = int((now - self.started_at) / self.period_s)
        if number != self._current:
            self._current = number
            for old in [n for n in self._contexts if n < number - 1]:
                del self._contexts[old]
            if number not in self._contexts:
                self._alone = True
                self._contexts[number] = self._context(None)
            self._names = {}
            for near in (number - 1, number, number + 1):
                if near in self._contexts:
                    key_name = self._key_name(near)
                    if key_name:
                        self._names[key_name] = near
        return self.started_at + (number + 1) * self.period_s

    def _key_name(self, number: int) -> bytes:
        """The name of a generation's ticket key: what a ticket for ourselves begins with."""
        if not self.settings.tickets:
            return b""
        client = SSL.Context(SSL.TLS_CLIENT_METHOD)
        client.set_alpn_protos([*self.settings.protocols])
        first = SSL.Connection(client)
        server = SSL.Connection(self._contexts[number])
        server.set_context(self._default[0].context)
        if self.settings.client_auth == "required":
            server.set_verify(SSL.VERIFY_NONE)
        server.set_accept_state()
        first.set_connect_state()
        one, other = bindings.Pipe(first), bindings.Pipe(server)
        one.shake_hands()
        other.feed(one.take())
        other.shake_hands()
        one.feed(other.take())
        one.shake_hands()
        other.feed(one.take())
        other.shake_hands()
        one.feed(other.take())
        one.read()
        session = first.get_session()
        if session is None or one.failed or other.failed:
            bindings.reasons()
            return b""
        second = SSL.Connection(client)
        second.set_session(session)
        second.set_connect_state()
        pipe = bindings.Pipe(second)
        pipe.shake_hands()
        found = ClientHelloReader().feed(pipe.take())
        bindings.reasons()
        return found[0].ticket[:_KEY_NAME] if found is not None else b""

    # -- sessions ----------------------------------------------------------------------------

    def session(self) -> ServerSession:
        """A session for a client that has just connected."""
        return ServerSession(self)

    def connection(self, hello: ClientHello) -> tuple[SSL.Connection, bool]:
        """The connection for a client that asks so, and whether its early data may be read.

        Raises:
            ClientHelloError: there is none for it.
        """
        settings = self.settings
        if hello.protocols and not any(p in settings.protocols for p in hello.protocols):
            raise ClientHelloError(
                NO_APPLICATION_PROTOCOL, "the client speaks none of our protocols (ALPN)"
            )
        served = self._find(hello.server_name)
        if served is None:
            if settings.strict_sni:
                raise ClientHelloError(
                    UNRECOGNIZED_NAME, f'no certificate for the server name "{hello.server_name}"'
                )
            served = self._default
        chosen = _suited(served, hello.ecdsa)
        known = self._names.get(hello.ticket[:_KEY_NAME]) if hello.ticket else None
        if chosen.certificate.must_staple and not chosen.certificate.staple and known is None:
            raise ClientHelloError(
                INTERNAL_ERROR, "the certificate asks for a staple, and there is none"
            )
        number = self._current if known is None else known
        connection = SSL.Connection(self._contexts[number])
        connection.set_context(chosen.context)
        early = (
            hello.early_data
            and known is not None
            and settings.early_octets > 0
            and self.accept_early(hello.random)
        )
        return connection, early

    # -- contexts ----------------------------------------------------------------------------

    def _context(self, certificate: Certificate | None) -> SSL.Context:
        """A context: of a certificate, or of a generation if None."""
        settings = self.settings
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION if settings.tls12 else SSL.TLS1_3_VERSION)
        context.set_max_proto_version(SSL.TLS1_3_VERSION)
        context.set_options(
            SSL.OP_NO_RENEGOTIATION
            | SSL.OP_NO_COMPRESSION
            | bindings.SSL_OP_CIPHER_SERVER_PREFERENCE
            | bindings.SSL_OP_PRIORITIZE_CHACHA
        )
        if settings.tls12:
            context.set_cipher_list(TLS12_CIPHERS.encode())
        context.set_tls13_ciphersuites(":".join(settings.suites or TLS13_SUITES).encode())
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_session_id(_SESSION_CONTEXT)
        context.set_timeout(settings.ticket_lifetime_s)
        if not settings.tickets:
            context.set_options(SSL.OP_NO_TICKET)
        if settings.early_octets:
            bindings.allow_early_data(context, settings.early_octets)
        if settings.protocols:
            context.set_alpn_select_callback(_chooser(settings.protocols))
        if settings.client_auth != "none":
            _ask_for_certificates(context, settings)
        if settings.key_log is not None:
            write = settings.key_log
            context.set_keylog_callback(lambda connection, line: write(line))
        if certificate is not None:
            context.use_certificate(certificate.leaf)
            for issuer in certificate.chain:
                context.add_extra_chain_cert(issuer)
            context.use_privatekey(certificate.key)
            context.set_ocsp_server_callback(lambda connection, data: certificate.staple)
        return context


class _Served:
    """A certificate and the context made of it."""

    __slots__ = ("certificate", "context")

    def __init__(self, certificate: Certificate, context: SSL.Context) -> None:
        self.certificate = certificate
        self.context = context


def _suited(served: list[_Served], ecdsa: bool) -> _Served:
    """The one whose key the client can verify; ECDSA first, whose signature costs the least."""
    wanted = "ecdsa" if ecdsa else "other"
    return next((one for one in served if one.certificate.kind == wanted), served[0])


def _refuse(random: bytes) -> bool:
    return False


def _chooser(protocols: tuple[bytes, ...]) -> Callable[[Any, list[bytes]], Any]:
    def choose(connection: Any, offered: list[bytes]) -> Any:
        # There is one, as a client without is refused before; unless its second hello (RFC 8446
        # section 4.1.2) is not its first. An exception would stay in the context for ever.
        found = (protocol for protocol in protocols if protocol in offered)
        return next(found, SSL.NO_OVERLAPPING_PROTOCOLS)

    return choose


def _ask_for_certificates(context: SSL.Context, settings: ServerSettings) -> None:
    mode = SSL.VERIFY_PEER
    if settings.client_auth == "required":
        mode |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
    context.set_verify(mode)
    store = context.get_cert_store()
    assert store is not None
    for ca in settings.client_ca:
        store.add_cert(crypto.X509.from_cryptography(ca))
        context.add_client_ca(ca)
    for crl in settings.client_crls:
        store.add_crl(crl)
    if settings.client_crls:
        store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
