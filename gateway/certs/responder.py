"""A small OCSP responder (RFC 6960 appendix A), which can be made to lie.

For development, tests and benchmarks: it knows the certificates it is given, answers each request
with a thread of its own, and signs each answer anew.
"""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Literal
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import ocsp

from gateway.certs.make import Issued, make_ca, make_leaf, make_ocsp_response, make_ocsp_signer
from gateway.tls.ocsp import REQUEST_TYPE, RESPONSE_TYPE

Fault = Literal[
    "none",
    "revoked",
    "unknown",
    "wrong-issuer",
    "unauthorized-signer",
    "wrong-serial",
    "expired",
    "not-yet-valid",
    "garbage",
    "huge",
    "try-later",
    "http-500",
    "wrong-nonce",
]
FAULTS: Final[tuple[Fault, ...]] = Fault.__args__  # type: ignore[attr-defined]

_MAX_REQUEST: Final = 65_536
_HUGE: Final = 1_048_576
_DAY: Final = timedelta(days=1)


@dataclass
class Behaviour:
    """How it answers, to be changed at any time. ``validity`` is how far nextUpdate lies ahead,
    None for none; ``delay_s`` goes before each answer."""

    fault: Fault = "none"
    validity: timedelta | None = timedelta(hours=1)
    delay_s: float = 0.0


class Responder:
    """Serves while it is entered as a context manager; ``requests`` counts what it was asked.

    ``signer`` is the authority itself or one it has authorized. Port 0 takes a free one. The status
    of a certificate of ``ca`` that it was not given is unknown; it refuses to speak for others
    (RFC 6960 section 2.3, unauthorized). Raises OSError if it can't listen.
    """

    def __init__(
        self,
        ca: Issued,
        signer: Issued,
        certificates: Iterable[x509.Certificate],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        behaviour: Behaviour | None = None,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.requests = 0
        self._ca = ca
        self._signer = signer
        self._known = {item.serial_number: item for item in certificates}
        self._stopping = threading.Event()
        self._server = _Server((host, port), self)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        host = str(self._server.server_address[0])
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.server_address[1]
        return port

    def know(self, certificate: x509.Certificate) -> None:
        """Tell the status of this one, too."""
        self._known[certificate.serial_number] = certificate

    def __enter__(self) -> Responder:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()

    def serve_forever(self) -> None:
        """Serve in this thread until it is interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._stopping.set()
            self._server.server_close()

    def answer(self, request: bytes) -> tuple[int, bytes]:
        """The HTTP status and the body for a request in DER."""
        self.requests += 1
        behaviour = self.behaviour
        if behaviour.delay_s and self._stopping.wait(behaviour.delay_s):
            return 503, b""
        fault = behaviour.fault
        if fault == "garbage":
            return 200, os.urandom(1500)
        if fault == "huge":
            return 200, os.urandom(_HUGE)
        if fault == "http-500":
            return 500, b"the responder is broken"
        if fault == "try-later":
            return 200, _refusal(ocsp.OCSPResponseStatus.TRY_LATER)
        try:
            asked = ocsp.load_der_ocsp_request(request)
            serial = asked.serial_number
            nonce = _nonce(asked)
        except ValueError:
            return 200, _refusal(ocsp.OCSPResponseStatus.MALFORMED_REQUEST)
        status = ocsp.OCSPCertStatus.GOOD
        leaf = self._known.get(serial)
        if leaf is None:
            if not _asks_about(self._ca.certificate, asked):
                return 200, _refusal(ocsp.OCSPResponseStatus.UNAUTHORIZED)
            status = ocsp.OCSPCertStatus.UNKNOWN
            try:
                # The library tells a status only of a certificate that it is shown.
                leaf = make_leaf(self._ca, ["unknown.test"], serial_number=serial).certificate
            except ValueError:  # no serial number of a certificate (RFC 5280 section 4.1.2.2)
                return 200, _refusal(ocsp.OCSPResponseStatus.UNAUTHORIZED)
        return 200, self._sign(leaf, status, nonce, behaviour)

    def _sign(
        self,
        leaf: x509.Certificate,
        status: ocsp.OCSPCertStatus,
        nonce: bytes,
        behaviour: Behaviour,
    ) -> bytes:
        fault = behaviour.fault
        issuer, signer = self._ca.certificate, self._signer
        now = datetime.now(UTC).replace(microsecond=0)
        validity = behaviour.validity
        if fault == "revoked":
            status = ocsp.OCSPCertStatus.REVOKED
        elif fault == "unknown":
            status = ocsp.OCSPCertStatus.UNKNOWN
        elif fault == "wrong-issuer":
            signer = make_ca("somebody else's CA")
        elif fault == "unauthorized-signer":
            signer = make_ocsp_signer(self._ca, authorized=False)
        elif fault == "wrong-serial":
            leaf = make_leaf(self._ca, ["other.test"]).certificate
        elif fault == "expired":
            now, validity = now - 2 * _DAY, _DAY
        elif fault == "not-yet-valid":
            now += _DAY
        elif fault == "wrong-nonce" and nonce:
            nonce = os.urandom(len(nonce))
        return make_ocsp_response(
            leaf, issuer, signer, status=status, this_update=now, validity=validity, nonce=nonce
        )


def _nonce(request: ocsp.OCSPRequest) -> bytes:
    try:
        return request.extensions.get_extension_for_class(x509.OCSPNonce).value.nonce
    except x509.ExtensionNotFound:
        return b""


def _asks_about(issuer: x509.Certificate, request: ocsp.OCSPRequest) -> bool:
    try:
        algorithm = request.hash_algorithm
    except UnsupportedAlgorithm:
        return False
    # The library hashes an issuer's name and key only as a part of a request.
    own = ocsp.OCSPRequestBuilder().add_certificate(issuer, issuer, algorithm).build()
    return (request.issuer_name_hash, request.issuer_key_hash) == (
        own.issuer_name_hash,
        own.issuer_key_hash,
    )


def _refusal(status: ocsp.OCSPResponseStatus) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return ocsp.OCSPResponseBuilder.build_unsuccessful(status).public_bytes(Encoding.DER)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], responder: Responder) -> None:
        self.responder = responder
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's fault."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10.0
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > _MAX_REQUEST:
            self.close_connection = True
            self._send(413 if length.isdigit() else 411, b"")
        elif self.headers.get_content_type() != REQUEST_TYPE:
            self.close_connection = True
            self._send(415, b"")
        else:
            self._send(*self.server.responder.answer(self.rfile.read(int(length))))

    def do_GET(self) -> None:
        try:
            request = base64.b64decode(unquote(self.path).lstrip("/"))
        except ValueError:
            self._send(400, b"")
        else:
            self._send(*self.server.responder.answer(request))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", RESPONSE_TYPE if status == 200 else "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
