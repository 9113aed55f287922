"""A client that times the first byte of the response on a new TLS connection.

It is the same for all proxies, in this process, and written upon OpenSSL directly: what it costs
itself (about a millisecond with a full handshake) is in every figure.
"""

from __future__ import annotations

import http.client
import socket
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from cryptography import x509
from OpenSSL import SSL, crypto
from OpenSSL._util import ffi, lib

from benchmarks.errors import BenchmarkError
from benchmarks.process import pause
from benchmarks.tls.material import HOST, Material
from gateway.tls import ocsp

_TIMEOUT_S = 5.0
_REQUEST = f"GET /1k HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode()


@dataclass(frozen=True)
class Visit:
    """How to connect: to ``port``, with ``rtt_s`` added by a relay. ``look_up`` is the port at
    which the client asks for the certificate's status by itself, None to rely on the staple."""

    port: int
    rtt_s: float = 0.0
    look_up: int | None = None
    early_data: bool = False


class Client:
    """Verifies the certificate, and its status: by the staple or by a look-up of its own."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._staple = b""
        self._context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_3_VERSION)
        store = self._context.get_cert_store()
        assert store is not None
        store.add_cert(crypto.X509.from_cryptography(material.ca.certificate))
        self._context.set_verify(SSL.VERIFY_PEER)
        self._context.set_alpn_protos([b"http/1.1"])
        self._context.set_ocsp_client_callback(self._stapled)

    def _stapled(self, connection: SSL.Connection, response: bytes, data: Any) -> bool:
        self._staple = response
        return True

    def visit(
        self, how: Visit, session: SSL.Session | None = None
    ) -> tuple[float, SSL.Session | None]:
        """One request on a connection of its own: microseconds from before the connect to the
        first byte of the response, and what resumes the session.

        BenchmarkError when it is not answered, the status is not known to be good, or a session
        is not resumed.
        """
        self._staple = b""
        began = perf_counter()
        with socket.create_connection(("127.0.0.1", how.port), _TIMEOUT_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(None)  # a timeout makes the socket non-blocking, which OpenSSL sees
            limit = struct.pack("ll", int(_TIMEOUT_S), 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            if how.rtt_s:
                pause(how.rtt_s)
            try:
                return self._talk(sock, how, session, began)
            except SSL.Error as error:
                raise BenchmarkError(f"TLS: {error!r}") from error

    def _talk(
        self, sock: socket.socket, how: Visit, session: SSL.Session | None, began: float
    ) -> tuple[float, SSL.Session | None]:
        connection = SSL.Connection(self._context, sock)
        connection.set_connect_state()
        connection.set_tlsext_host_name(HOST.encode())
        if session is not None:
            connection.set_session(session)
        elif how.look_up is None:
            connection.request_ocsp()
        if how.early_data:
            written = ffi.new("size_t *")
            if not lib.SSL_write_early_data(connection._ssl, _REQUEST, len(_REQUEST), written):
                raise BenchmarkError("the ticket allows no early data")
        connection.do_handshake()
        if session is None:
            self._check_status(how, connection)
        elif not lib.SSL_session_reused(connection._ssl):
            raise BenchmarkError("the session was not resumed")
        if not how.early_data:
            connection.send(_REQUEST)
        first = connection.recv(65_536)
        took = (perf_counter() - began) * 1e6
        if not first.startswith(b"HTTP/1.1 200"):
            raise BenchmarkError(f"answered {first[:60]!r}")
        fresh = connection.get_session()
        # Or OpenSSL would not resume it: the proxy closes when it likes.
        connection.set_shutdown(SSL.SENT_SHUTDOWN | SSL.RECEIVED_SHUTDOWN)
        return took, fresh

    def _check_status(self, how: Visit, connection: SSL.Connection) -> None:
        leaf = connection.get_peer_certificate(as_cryptography=True)
        assert isinstance(leaf, x509.Certificate)
        issuer = self._material.ca.certificate
        response = self._staple
        if how.look_up is not None:
            response = _look_up(how.look_up, how.rtt_s, leaf, issuer)
        if not response:
            raise BenchmarkError("no staple came")
        try:
            ocsp.verify(response, leaf, issuer, datetime.now(UTC))
        except ocsp.OcspError as error:
            raise BenchmarkError(f"OCSP: {error}") from error


def _look_up(port: int, rtt_s: float, leaf: x509.Certificate, issuer: x509.Certificate) -> bytes:
    """Ask the responder, as clients do that get no staple."""
    responder = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        responder.connect()
        if rtt_s:
            pause(rtt_s)
        request = ocsp.build_request(leaf, issuer, b"")
        responder.request("POST", "/", request, {"content-type": ocsp.REQUEST_TYPE})
        return responder.getresponse().read()
    finally:
        responder.close()
