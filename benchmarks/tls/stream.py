"""A client's connection over TLS, blocking, with sessions and early data.

All that goes wrong is an OSError, as with a socket.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from OpenSSL import SSL
from OpenSSL._util import ffi, lib

from benchmarks.tls.material import HOST

TIMEOUT_S = 10
"""How long the other side may be silent."""

HTTP1 = b"http/1.1"

_TIMEVAL = struct.pack("@ll", TIMEOUT_S, 0)
_CHUNK = 65_536


def make_context(authority: Path, *, tls12: bool = False) -> SSL.Context:
    """For clients that speak TLS 1.3 (or 1.2) with AES-128 alone, and believe ``authority`` (PEM)
    alone."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION if tls12 else SSL.TLS1_3_VERSION)
    if tls12:
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        context.set_cipher_list(b"ECDHE-ECDSA-AES128-GCM-SHA256")
    context.set_tls13_ciphersuites(b"TLS_AES_128_GCM_SHA256")
    context.load_verify_locations(str(authority))
    context.set_verify(SSL.VERIFY_PEER)
    context.set_ocsp_client_callback(_keep_staple)
    return context


def _keep_staple(connection: SSL.Connection, staple: bytes, _data: object) -> bool:
    """It is checked after the handshake, as an answer of the responder is."""
    connection.set_app_data(staple)
    return True


class TlsStream:
    """TLS over ``sock``, which is connected. The handshake is for :meth:`handshake`."""

    def __init__(
        self,
        context: SSL.Context,
        sock: socket.socket,
        protocols: Sequence[bytes] = (HTTP1,),
        *,
        session: SSL.Session | None = None,
        staple: bool = False,
    ) -> None:
        # Timeouts of the kernel: with Python's the socket would not block, and OpenSSL reads it.
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._connection = SSL.Connection(context, sock)
        self._connection.set_connect_state()
        self._connection.set_tlsext_host_name(HOST.encode())
        self._connection.set_alpn_protos(list(protocols))
        if session is not None:
            self._connection.set_session(session)
        if staple:
            self._connection.request_ocsp()

    def write_early(self, data: bytes) -> None:
        """Begin the handshake with ``data`` behind the ClientHello. The session must allow it."""
        written = ffi.new("size_t *")
        done = lib.SSL_write_early_data(self._connection._ssl, data, len(data), written)
        lib.ERR_clear_error()
        if done != 1 or written[0] != len(data):
            raise ConnectionError("early data could not be written")

    def handshake(self) -> None:
        """All of it, with the certificate verified."""
        try:
            self._connection.do_handshake()
        except SSL.Error as error:
            raise _translated(error, "the handshake") from error

    def sendall(self, data: bytes) -> None:
        """As a socket does."""
        try:
            self._connection.sendall(data)
        except SSL.Error as error:
            raise _translated(error, "sending") from error

    def recv(self, count: int = _CHUNK) -> bytes:
        """As a socket does."""
        try:
            return self._connection.recv(count)
        except SSL.ZeroReturnError:
            return b""
        except SSL.Error as error:
            raise _translated(error, "receiving") from error

    @property
    def resumed(self) -> bool:
        """Whether the session offered was taken."""
        return bool(lib.SSL_session_reused(self._connection._ssl))

    @property
    def session(self) -> SSL.Session:
        """The latest: with TLS 1.3 that of the last ticket read."""
        session = self._connection.get_session()
        if session is None:
            raise ConnectionError("no session")
        return session

    @property
    def staple(self) -> bytes:
        """What the server stapled; empty if it did not, or was not asked."""
        staple = self._connection.get_app_data()
        return staple if isinstance(staple, bytes) else b""

    def peer(self) -> x509.Certificate:
        """The server's certificate."""
        found = self._connection.get_peer_certificate(as_cryptography=True)
        if found is None:
            raise ConnectionError("the server showed no certificate")
        return found

    def finish(self) -> None:
        """Close and wait for the other side's end, so that its work is done, and not cut short by a
        reset that tickets still unread would give rise to."""
        # Without close_notify OpenSSL would take the session for one that must not be resumed.
        with suppress(SSL.Error):
            self._connection.shutdown()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(_CHUNK):
                pass
        self._sock.close()


def allows_early_data(session: SSL.Session) -> bool:
    """Whether its ticket said so."""
    return bool(lib.SSL_SESSION_get_max_early_data(session._session))


def _translated(error: SSL.Error, doing: str) -> OSError:
    if isinstance(error, SSL.WantReadError | SSL.WantWriteError):
        return TimeoutError(f"{doing}: the other side is silent")
    return ConnectionError(f"{doing}: {error!r}")
