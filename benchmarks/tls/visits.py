"""Visits: a new connection, one GET over HTTP/1.1, and how long until the response begins.

The kinds:

- ``full``: a full handshake, with nothing asked about the certificate's revocation.
- ``look-up``: after it the client asks the responder, and only then sends its request.
- ``old``: likewise with TLS 1.2, whose handshake takes a round trip more, by a client that has to
  look up the responder's address before: one more that we wait for.
- ``staple``: the server brings the answer along; the client checks it.
- ``resumed``: the session of an earlier connection. No certificate comes, so none is checked.
- ``early``: resumed, with the GET as early data (0-RTT).

Each visit with a session has a new one, from a connection made before the clock runs: RFC 8446
appendix C.4 wants tickets used once, and a server that refuses replays insists on it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from cryptography import x509
from OpenSSL import SSL

from benchmarks.process import pause
from benchmarks.tls import lookup, status
from benchmarks.tls.material import HOST
from benchmarks.tls.stream import TlsStream, allows_early_data, make_context

Kind = Literal["full", "look-up", "old", "staple", "resumed", "early"]

REQUEST = f"GET /1k HTTP/1.1\r\nHost: {HOST}\r\nAccept: */*\r\n\r\n".encode()


class Visits(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``count`` visits at ``port``, which may be a relay's; ``direct`` is the proxy's own.

    ``rtt_s`` is the round trip of the network between. ``responder`` is where its look-ups go
    (through a relay likewise), which the responder answers after ``delay_s``.
    """

    kind: Kind
    count: int
    port: int
    direct: int
    rtt_s: float = 0.0
    responder: int = 0
    delay_s: float = 0.0


class Visitor:
    """Makes visits."""

    def __init__(self, authority: Path) -> None:
        self.context = make_context(authority)
        self._old = make_context(authority, tls12=True)
        self._issuer = x509.load_pem_x509_certificate(authority.read_bytes())

    def visit_all(self, visits: Visits) -> list[float]:
        """Microseconds from connect to the first octets of the response, for each visit.

        OSError or StatusError if one does not go as its kind says.
        """
        return [self._visit(visits) for _ in range(visits.count)]

    def ticket(self, port: int) -> SSL.Session:
        """The session of a new connection with one request."""
        stream = TlsStream(self.context, connect(port, 0))
        stream.handshake()
        stream.sendall(REQUEST)
        read_response(stream.recv)
        session = stream.session
        stream.finish()
        return session

    def _visit(self, visits: Visits) -> float:
        kind = visits.kind
        session = None
        if kind in ("resumed", "early"):
            session = self.ticket(visits.direct)
            if kind == "early" and not allows_early_data(session):
                raise ConnectionError("the ticket allows no early data")

        began_ns = time.perf_counter_ns()
        sock = connect(visits.port, visits.rtt_s)
        context = self._old if kind == "old" else self.context
        stream = TlsStream(context, sock, session=session, staple=kind == "staple")
        if kind == "early":
            stream.write_early(REQUEST)
        stream.handshake()
        if kind == "staple":
            status.check(stream.staple, stream.peer(), self._issuer)
        elif kind in ("look-up", "old"):
            if kind == "old" and visits.rtt_s:
                pause(visits.rtt_s)
            self._look_up(visits, stream.peer())
        if kind != "early":
            stream.sendall(REQUEST)
        first = self._first(stream, kind)
        took_us = (time.perf_counter_ns() - began_ns) / 1e3

        if stream.resumed != (session is not None):
            raise ConnectionError("the session was not resumed")
        read_response(stream.recv, first)
        stream.finish()
        return took_us

    def _look_up(self, visits: Visits, leaf: x509.Certificate) -> None:
        asked = status.question(leaf, self._issuer)
        sock = connect(visits.responder, visits.rtt_s)
        status.check(lookup.ask(sock, asked, visits.delay_s), leaf, self._issuer)

    def _first(self, stream: TlsStream, kind: Kind) -> bytes:
        try:
            return stream.recv()
        except TimeoutError as error:
            # A server that refuses early data skips it, and waits for the request to come again.
            # The bindings lack SSL_get_early_data_status, so its silence is how we learn of it.
            reason = "early data was refused" if kind == "early" else str(error)
            raise TimeoutError(reason) from error


def connect(port: int, rtt_s: float) -> socket.socket:
    """A connection, as over a network with that round trip."""
    sock = socket.create_connection(("127.0.0.1", port))
    if rtt_s:
        pause(rtt_s)
    return sock


def read_response(recv: Callable[[], bytes], received: bytes = b"") -> bytes:
    """The body. ConnectionError unless the response is a whole 200 with a Content-Length."""
    while b"\r\n\r\n" not in received:
        received += _more(recv)
    head, _, body = received.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    if line.split()[1:2] != [b"200"]:
        raise ConnectionError(f"the response is {line.decode('latin-1')}")
    lengths = [f.partition(b":")[2] for f in fields if f.lower().startswith(b"content-length:")]
    if not lengths:
        raise ConnectionError("a response without Content-Length")
    while len(body) < int(lengths[0]):
        body += _more(recv)
    return body


def _more(recv: Callable[[], bytes]) -> bytes:
    data = recv()
    if not data:
        raise ConnectionError("closed before the response was whole")
    return data
