"""What the end-to-end tests of TLS have in common: certificates, and recorded early data."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from OpenSSL import SSL, crypto
from OpenSSL._util import ffi, lib

from gateway.certs.make import Issued, make_ca, make_leaf

from .processes import WAIT_S


@dataclass
class Authority:
    """A CA, and where its leaves are."""

    ca: Issued
    directory: Path

    @property
    def file(self) -> str:
        """The CA's certificate."""
        return str(self.directory / "ca.pem")

    def leaf(self, name: str = "edge", names: tuple[str, ...] = (), **how: Any) -> Issued:
        """Make a leaf and write it; ``table`` names its files."""
        issued = make_leaf(self.ca, names or ("localhost", "127.0.0.1"), **how)
        chain = [self.ca.certificate]
        issued.write(self.directory / f"{name}.pem", self.directory / f"{name}.key", chain)
        return issued

    def table(self, name: str = "edge", **more: Any) -> dict[str, Any]:
        """An entry of ``certificates``."""
        return {
            "certificate": str(self.directory / f"{name}.pem"),
            "private_key": str(self.directory / f"{name}.key"),
            **more,
        }


def make_authority(directory: Path) -> Authority:
    """One with a leaf for localhost."""
    directory.mkdir(exist_ok=True)
    ca = make_ca()
    ca.write(directory / "ca.pem", directory / "ca.key")
    authority = Authority(ca, directory)
    authority.leaf()
    return authority


class Tls:
    """A blocking client on memory BIOs, which sees and can repeat every octet of its own."""

    def __init__(self, authority: Authority, protocol: bytes = b"http/1.1") -> None:
        self.context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self.context.set_alpn_protos([protocol])
        store = self.context.get_cert_store()
        assert store is not None
        store.add_cert(crypto.X509.from_cryptography(authority.ca.certificate))
        self.context.set_verify(SSL.VERIFY_PEER)

    def connection(self, session: Any = None) -> SSL.Connection:
        """A new one, nothing sent."""
        connection = SSL.Connection(self.context)
        connection.set_connect_state()
        connection.set_tlsext_host_name(b"localhost")
        if session is not None:
            connection.set_session(session)
        return connection

    def flight(self, session: Any, early: bytes) -> tuple[SSL.Connection, bytes]:
        """A connection and its first flight with early data, to be sent."""
        connection = self.connection(session)
        written = ffi.new("size_t *")
        assert lib.SSL_write_early_data(connection._ssl, early, len(early), written) == 1
        return connection, drain(connection)

    @contextmanager
    def ask(
        self, port: int, request: bytes, session: Any = None, early: bool = False
    ) -> Iterator[Answer]:
        """Send one request on a new connection; the answer's head came when this yields."""
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if early:
                connection, flight = self.flight(session, request)
                sock.sendall(flight)
            else:
                connection = self.connection(session)
            shake_hands(connection, sock)
            if not early:
                connection.send(request)
                sock.sendall(drain(connection))
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += receive(connection, sock)
            yield Answer(answer, bool(lib.SSL_session_reused(connection._ssl)), connection)
            # Or OpenSSL would not resume it.
            connection.set_shutdown(SSL.SENT_SHUTDOWN | SSL.RECEIVED_SHUTDOWN)


@dataclass
class Answer:
    """What came, whether the session was resumed, and the connection."""

    octets: bytes
    resumed: bool
    connection: SSL.Connection

    @property
    def session(self) -> Any:
        """What resumes it."""
        return self.connection.get_session()


def drain(connection: SSL.Connection) -> bytes:
    """What it has to send."""
    octets = b""
    while True:
        try:
            octets += connection.bio_read(65536)
        except SSL.WantReadError:
            return octets


def shake_hands(connection: SSL.Connection, sock: socket.socket) -> None:
    while True:
        try:
            connection.do_handshake()
        except SSL.WantReadError:
            sock.sendall(drain(connection))
            feed(connection, sock)
        else:
            sock.sendall(drain(connection))
            return


def receive(connection: SSL.Connection, sock: socket.socket) -> bytes:
    while True:
        try:
            return connection.recv(65536)
        except SSL.WantReadError:
            feed(connection, sock)


def feed(connection: SSL.Connection, sock: socket.socket) -> None:
    data = sock.recv(65536)
    if not data:
        raise EOFError
    connection.bio_write(data)
