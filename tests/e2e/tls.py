"""TLS for the tests: an authority, a client on memory that sees each octet, and servers."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
from cryptography import x509
from OpenSSL import SSL, crypto
from OpenSSL._util import ffi, lib

from gateway.certs.make import Issued, key_pem, make_ca, make_leaf, make_ocsp_response
from gateway.demo.backend import Tokens
from gateway.demo.tokens_pb2_grpc import add_TokensServicer_to_server
from gateway.tls.client_hello import ClientHelloReader

from .processes import WAIT_S, GatewayProcess, Table
from .raw import RawBackend, RawClient, RawConnection, Script

HTTP1 = b"http/1.1"
H2 = b"h2"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLUSTER = {"protocol": "http1", "idle_timeout": "100ms"}


@dataclass(frozen=True)
class Leaf:
    """A certificate with its chain, and its key, as files."""

    issued: Issued
    certificate: Path
    private_key: Path

    @property
    def x509(self) -> x509.Certificate:
        return self.issued.certificate

    def entry(self, **more: Any) -> dict[str, Any]:
        """A ``[[tls.NAME.certificates]]``."""
        return {**self.files(), **more}

    def files(self) -> dict[str, str]:
        return {"certificate": str(self.certificate), "private_key": str(self.private_key)}


class Authority:
    """Signs leaves; ``file`` is its certificate."""

    def __init__(self, directory: Path, name: str = "the tests' CA") -> None:
        self.ca = make_ca(name)
        self.file = directory / "ca.pem"
        self.file.write_bytes(self.ca.pem)
        self._directory = directory
        self._count = 0

    @property
    def pem(self) -> bytes:
        return self.ca.pem

    def leaf(self, *names: str, **options: Any) -> Leaf:
        """A new leaf, for localhost and 127.0.0.1 if for no other names."""
        return self.write(make_leaf(self.ca, names or ("localhost", "127.0.0.1"), **options))

    def write(self, issued: Issued, chain: bool = True) -> Leaf:
        self._count += 1
        leaf = Leaf(
            issued,
            self._directory / f"leaf{self._count}.pem",
            self._directory / f"leaf{self._count}.key",
        )
        issued.write(leaf.certificate, leaf.private_key, [self.ca.certificate] if chain else [])
        return leaf

    def staple(self, leaf: Leaf, **options: Any) -> Path:
        """A file with an OCSP response about ``leaf``."""
        path = leaf.certificate.with_suffix(".ocsp")
        path.write_bytes(self.response(leaf, **options))
        return path

    def response(self, leaf: Leaf, **options: Any) -> bytes:
        given = {"validity": timedelta(days=1), **options}
        return make_ocsp_response(leaf.x509, self.ca.certificate, self.ca, **given)


def edge(
    *certificates: Leaf | Table,
    listener: Table | None = None,
    config: Table | None = None,
    **table: Any,
) -> dict[str, Any]:
    """Arguments of ``gateway``: its listener speaks TLS with these certificates."""
    entries = [item.entry() if isinstance(item, Leaf) else item for item in certificates]
    return {
        "listener": {"tls": "edge", **(listener or {})},
        # Fewer generations than by default: a start makes a context for each.
        "config": {
            "tls": {"edge": {"certificates": entries, "ticket_generations": 16, **table}},
            **(config or {}),
        },
    }


class Alert(OSError):
    """The TLS session failed, on either side."""


class TlsSocket:
    """A socket that speaks TLS by pyOpenSSL on memory.

    ``sent`` is all that went out. ``ended`` says that the peer sent its close_notify. What goes
    wrong with TLS is an :class:`Alert`.
    """

    def __init__(
        self,
        sock: socket.socket,
        authority: Authority,
        *,
        name: str = "localhost",
        protocols: Sequence[bytes] = (HTTP1,),
        session: SSL.Session | None = None,
        certificate: Leaf | None = None,
        staple: bool = False,
        version: int = SSL.TLS1_3_VERSION,
        suites: bytes = b"",
    ) -> None:
        self.sock = sock
        self.sent = b""
        self.staple = b""
        self.ended = False
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_min_proto_version(version)
        context.set_max_proto_version(version)
        context.set_verify(SSL.VERIFY_PEER)
        store = context.get_cert_store()
        assert store is not None
        store.add_cert(crypto.X509.from_cryptography(authority.ca.certificate))
        context.set_ocsp_client_callback(self._stapled)
        if suites:
            context.set_tls13_ciphersuites(suites)
        if certificate is not None:
            context.use_certificate(certificate.x509)
            context.use_privatekey(certificate.issued.key)
        self.connection = SSL.Connection(context, None)
        self.connection.set_connect_state()
        if name:
            self.connection.set_tlsext_host_name(name.encode())
        if protocols:
            self.connection.set_alpn_protos(list(protocols))
        if session is not None:
            # The public method insists on one context for all.
            lib.SSL_set_session(self.connection._ssl, session._session)
        if staple:
            self.connection.request_ocsp()

    def _stapled(self, connection: SSL.Connection, response: bytes, data: object) -> bool:
        self.staple = response
        return True

    def write_early(self, data: bytes) -> None:
        """Make the ClientHello with ``data`` as early data behind it; nothing is sent yet."""
        written = ffi.new("size_t *")
        done = lib.SSL_write_early_data(self.connection._ssl, data, len(data), written)
        lib.ERR_clear_error()
        assert done == 1
        assert written[0] == len(data)

    def outgoing(self) -> bytes:
        """Take what is to be sent."""
        octets = b""
        with suppress(SSL.WantReadError):
            while True:
                octets += self.connection.bio_read(65536)
        return octets

    def flush(self) -> None:
        if octets := self.outgoing():
            self.sent += octets
            self.sock.sendall(octets)

    def handshake(self) -> None:
        while True:
            try:
                self.connection.do_handshake()
            except SSL.WantReadError:
                self.flush()
                if not self._more():
                    raise Alert("the peer closed within the handshake") from None
            except SSL.Error as error:
                raise self._failed(error) from None
            else:
                self.flush()
                return

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[self.connection.send(data) :]
            self.flush()

    def recv(self, size: int) -> bytes:
        """As a socket's; ``ended`` tells a close_notify from an end without one."""
        while True:
            try:
                return self.connection.recv(size)
            except SSL.WantReadError:
                self.flush()
                if not self._more():
                    return b""
            except SSL.ZeroReturnError:
                self.ended = True
                return b""
            except SSL.Error as error:
                raise self._failed(error) from None

    def close(self) -> None:
        with suppress(OSError, SSL.Error):
            self.connection.shutdown()
            self.flush()
        self.sock.close()

    def _more(self) -> bool:
        data = self.sock.recv(65536)
        if data:
            self.connection.bio_write(data)
        return bool(data)

    def _failed(self, error: SSL.Error) -> Alert:
        with suppress(OSError):
            self.flush()
        reasons = error.args[0] if error.args else ()
        return Alert("; ".join(str(entry[-1]) for entry in reasons))

    @property
    def resumed(self) -> bool:
        return bool(lib.SSL_session_reused(self.connection._ssl))

    @property
    def session(self) -> SSL.Session:
        """That of the last ticket that was read."""
        session = self.connection.get_session()
        assert session is not None
        return session

    def peer(self) -> x509.Certificate:
        found = self.connection.get_peer_certificate(as_cryptography=True)
        assert isinstance(found, x509.Certificate)
        return found


class TlsClient(RawClient):
    """A client that is nothing but a TLS session; with ``early`` it begins with early data.

    ``to`` is a port, the path of a unix socket, or a connected socket.
    """

    def __init__(
        self,
        to: int | Path | socket.socket,
        authority: Authority,
        *,
        early: bytes = b"",
        shake_hands: bool = True,
        **options: Any,
    ) -> None:
        self.tls = TlsSocket(connect(to), authority, **options)
        self.sock = cast("Any", self.tls)
        self.received = b""
        self._read = 0
        try:
            if early:
                self.tls.write_early(early)
            if shake_hands:
                self.tls.handshake()
        except BaseException:
            self.close()
            raise

    def get(self, path: str = "/", *lines: str) -> tuple[int, bytes, bytes]:
        """A request with its response."""
        head = (f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", "")
        self.send("\r\n".join(head).encode())
        return self.response()


def connect(to: int | Path | socket.socket) -> socket.socket:
    if isinstance(to, socket.socket):
        return to
    if isinstance(to, Path):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(to))
    else:
        sock = socket.create_connection(("127.0.0.1", to))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(WAIT_S)
    return sock


def ticket(port: int, authority: Authority, path: str = "/", **options: Any) -> SSL.Session:
    """A session to be resumed, of a connection with a request, which is closed."""
    with TlsClient(port, authority, **options) as client:
        client.get(path)
        return client.tls.session


def key_name(session: SSL.Session, authority: Authority) -> bytes:
    """The name of the key that a session's ticket is encrypted with (RFC 5077 section 4)."""
    with socket.socket() as sock:
        probe = TlsSocket(sock, authority, session=session)
        with suppress(SSL.WantReadError):
            probe.connection.do_handshake()
        found = ClientHelloReader().feed(probe.outgoing())
    assert found is not None
    return found[0].ticket[:16]


def worker_of(process: GatewayProcess, sock: socket.socket) -> int:
    """The pid of the worker that has accepted a TCP connection of ours."""
    ours, theirs = sock.getsockname()[1], sock.getpeername()[1]
    wanted = f"0100007F:{theirs:04X} 0100007F:{ours:04X}"
    inode = "0"
    while inode == "0":  # until it is accepted
        rows = Path("/proc/net/tcp").read_text().splitlines()
        inode = next(row.split()[9] for row in rows if wanted in row)
    for pid in process.worker_pids():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(link) == f"socket:[{inode}]":
                    return pid
    raise LookupError("no worker has it")


def number_of(text: str, name: str) -> int:
    """What stands behind ``name:``."""
    found = re.search(rf"{name}: *(\d+)", text)
    assert found is not None, text
    return int(found[1])


def run(argv: Iterable[object], *, given: bytes = b"", check: bool = True) -> str:
    """What a program writes, to both outputs."""
    done = subprocess.run(
        [str(word) for word in argv],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=2 * WAIT_S,
    )
    output = done.stdout.decode("utf-8", "replace")
    assert not check or done.returncode == 0, output
    return output


class TlsBackend(RawBackend):
    """A :class:`RawBackend` over Python's ``ssl``.

    ``names`` are the server names asked for, ``resumed`` says of each connection with a complete
    handshake whether its session was, ``peers`` which certificate its client showed. ``truncate``
    leaves the close_notify out.
    """

    def __init__(
        self,
        script: Script,
        leaf: Leaf,
        *,
        client_ca: Authority | None = None,
        protocols: Sequence[str] = ("http/1.1",),
        truncate: bool = False,
    ) -> None:
        self.names: list[str | None] = []
        self.resumed: list[bool] = []
        self.peers: list[dict[str, Any]] = []
        self._truncate = truncate
        context = self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.certificate, leaf.private_key)
        context.set_alpn_protocols(list(protocols))
        context.sni_callback = lambda sock, name, context: self.names.append(name)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(client_ca.file))
        super().__init__(script)
        self.address = f"https://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def _run(self, connection: RawConnection) -> None:
        try:
            sock = self._context.wrap_socket(connection._sock, server_side=True)
        except OSError:
            connection.ended.set()
            return
        connection._sock = sock
        self.resumed.append(bool(sock.session_reused))
        self.peers.append(dict(sock.getpeercert() or {}))
        super()._run(_Goodbye(connection, sock) if not self._truncate else connection)  # type: ignore[arg-type]


class _Goodbye:
    """A connection that ends with close_notify."""

    def __init__(self, connection: RawConnection, sock: ssl.SSLSocket) -> None:
        self._connection = connection
        self._tls = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._tls.settimeout(1.0)
            self._tls.unwrap()
        self._connection.close()


class GrpcTlsBackend:
    """grpcio with TLS."""

    def __init__(self, leaf: Leaf, *, client_ca: Authority | None = None) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
        add_TokensServicer_to_server(Tokens("secure"), self._server)
        chain = leaf.certificate.read_bytes()
        credentials = grpc.ssl_server_credentials(
            [(key_pem(leaf.issued.key), chain)],
            None if client_ca is None else client_ca.pem,
            client_ca is not None,
        )
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"grpcs://127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()
