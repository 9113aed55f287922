"""What may go wrong with TLS: peers that stop midway, files that change, responders that lie."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL

from gateway.certificates.state import State
from gateway.certs.make import key_pem, replace_file
from gateway.certs.responder import FAULTS, Behaviour, Fault, Responder
from gateway.tls.session import fingerprint

from .conftest import Site, StartGateway, Stopping, config_for
from .processes import WAIT_S, GatewayProcess
from .raw import RawBackend, echo
from .tls import (
    CLUSTER,
    GET,
    Alert,
    Authority,
    Leaf,
    TlsClient,
    TlsSocket,
    connect,
    edge,
    ticket,
)

HALF_OPEN = 2000
LIES: tuple[Fault, ...] = tuple(fault for fault in FAULTS if fault != "none")


@pytest.fixture
def web(stopping: Stopping) -> RawBackend:
    return stopping(RawBackend(echo))


@pytest.fixture
def hello(authority: Authority) -> bytes:
    """A ClientHello."""
    with socket.socket() as sock:
        client = TlsSocket(sock, authority)
        with suppress(SSL.WantReadError):
            client.connection.do_handshake()
        return client.outgoing()


def works(process: GatewayProcess, authority: Authority, **options: Any) -> None:
    with TlsClient(process.port, authority, **options) as client:
        assert client.get()[0] == 200


def ended(sock: socket.socket) -> bytes:
    """All that comes until the end, however it comes."""
    octets = b""
    with suppress(ConnectionResetError):
        while data := sock.recv(65536):
            octets += data
    return octets


class TestHandshakes:
    def test_thousands_that_are_half_open(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, hello: bytes
    ) -> None:
        """Who comes new drives out who came first, so they keep nobody out."""
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), max_handshakes=50))
        with ExitStack() as stack:
            for number in range(HALF_OPEN):
                sock = stack.enter_context(socket.create_connection((process.host, process.port)))
                with suppress(ConnectionError):
                    sock.sendall((b"", hello[: len(hello) // 2], hello)[number % 3])
                if number % 250 == 249:
                    works(process, authority)
            process.wait_for_counter("downstream_connections_accepted", HALF_OPEN + 8)
            counters = process.counters()
            assert counters["tls_handshakes"] == 8
            assert counters["tls_handshakes_open"] <= 50
            # All but those of the end; ours were not among the eldest.
            assert counters["tls_handshakes_evicted"] >= HALF_OPEN - 50
            assert counters["tls_handshake_failed"] == 0
        process.wait_until_idle()

    def test_a_handshake_has_an_end(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, hello: bytes
    ) -> None:
        tables = edge(authority.leaf(), handshake_timeout="300ms")
        process = gateway([web], cluster=CLUSTER, **tables)
        with ExitStack() as stack:
            socks = [stack.enter_context(connect(process.port)) for _ in range(30)]
            for number, sock in enumerate(socks):
                sock.sendall((b"", hello[:100], hello)[number % 3])
            for sock in socks:
                ended(sock)
        process.wait_for_counter("tls_handshake_timeout", 30)
        works(process, authority)

    def test_a_finished_handshake_without_a_request_has_an_end(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        process = gateway(
            [web], cluster=CLUSTER, http2={"preface_timeout": "300ms"}, **edge(authority.leaf())
        )
        with TlsClient(process.port, authority, protocols=()) as client:
            ended(client.tls.sock)
        process.wait_for_counter("preface_timeout", 1)

    @pytest.mark.parametrize(
        ("octets", "answer"),
        [
            (GET, b""),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""),
            (b"\x80\x2e\x01\3\1", b""),  # SSL 2
            (bytes(100), b""),
            (b"\xff" * 5000, b""),
            # Records of another kind, above all limits, or without octets.
            (b"\x17\3\3\0\1x", b""),
            (b"\x16\3\1\0\0", b"\x16"),
            (b"\x16\3\1\xff\xff", b"\x16"),
            # Not a ClientHello; one of 4 MiB; one that ends within its first vector.
            (b"\x16\3\1\0\4\2\0\0\0", b"\x0a"),
            (b"\x16\3\1\0\4\1\x40\0\0", b"\x16"),
            (b"\x16\3\1\0\x27\1\0\0\x23\3\3" + bytes(32) + b"\xff", b"\x32"),
        ],
    )
    def test_garbage(self, site: Site, authority: Authority, octets: bytes, answer: bytes) -> None:
        """The alert is fatal; what is no TLS at all gets none."""
        with connect(site.process.port) as sock:
            sock.sendall(octets)
            got = ended(sock)
        assert got == (b"\x15\3\3\0\2\2" + answer if answer else b"")
        site.process.wait_for_counter("tls_handshake_failed", 1)
        works(site.process, authority)

    def test_a_client_hello_of_20_kib(self, site: Site, authority: Authority, hello: bytes) -> None:
        """Padded (RFC 7685) and in two records; below the limit it is served."""
        process = site.process
        for size, alert in ((12_000, b""), (20_480, b"\x15\3\3\0\2\2\x16")):
            with connect(process.port) as sock:
                with suppress(ConnectionError):
                    sock.sendall(padded(hello, size))
                if alert:
                    assert ended(sock) == alert
                else:
                    assert sock.recv(3) == b"\x16\3\3"

    def test_it_is_abandoned_midway(self, site: Site, authority: Authority, hello: bytes) -> None:
        """By FIN and by RST, before and after our flight."""
        process = site.process
        count = 0
        for octets, answered in ((b"", False), (hello[:50], False), (hello, True)):
            for reset in (False, True):
                with connect(process.port) as sock:
                    if octets:
                        sock.sendall(octets)
                    if answered:
                        assert sock.recv(3) == b"\x16\3\3"
                    if reset:
                        linger = struct.pack("ii", 1, 0)
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                count += 1
        process.wait_for_counter("downstream_connections_accepted", count)
        assert process.wait_until_idle() == {}
        works(process, authority)

    def test_a_broken_record(self, site: Site, authority: Authority) -> None:
        """One bit of ciphertext that is wrong ends the session with an alert."""
        process = site.process
        with TlsClient(process.port, authority) as client:
            assert client.get()[0] == 200
            client.tls.connection.send(GET)
            octets = bytearray(client.tls.outgoing())
            octets[-1] ^= 1
            client.tls.sock.sendall(octets)
            with pytest.raises(Alert, match="bad record mac"):
                client.rest()
        process.wait_for_counter("tls_error", 1)
        assert site.web.received.count(b"GET / ") == 1


def padded(hello: bytes, size: int) -> bytes:
    """A ClientHello with ``size`` octets in its body, in records of 8,000."""
    body = bytearray(hello[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    padding = size - len(body) - 4
    extension = b"\0\x15" + padding.to_bytes(2) + bytes(padding)
    extensions = bytes(body[at + 2 :])
    body[at:] = (len(extension) + len(extensions)).to_bytes(2) + extension + extensions
    message = b"\1" + len(body).to_bytes(3) + bytes(body)
    pieces = [message[start : start + 8000] for start in range(0, len(message), 8000)]
    return b"".join(b"\x16\3\1" + len(piece).to_bytes(2) + piece for piece in pieces)


class TestFiles:
    def swap(self, leaf: Leaf, other: Leaf) -> None:
        """Replace a pair, first the one file, then the other."""
        replace_file(leaf.certificate, other.certificate.read_bytes(), 0o644)
        replace_file(leaf.private_key, key_pem(other.issued.key), 0o600)

    def serial(self, process: GatewayProcess, authority: Authority) -> int:
        with TlsClient(process.port, authority) as client:
            return client.tls.peer().serial_number

    def until_served(self, process: GatewayProcess, authority: Authority, leaf: Leaf) -> None:
        pause = threading.Event()
        for _ in range(1000):
            if self.serial(process, authority) == leaf.x509.serial_number:
                return
            pause.wait(0.02)
        raise TimeoutError(process.output)

    def test_swapped_under_load(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """Twenty times, while clients come: no handshake fails, and the last pair is served."""
        leaf = authority.leaf()
        process = gateway([web], cluster=CLUSTER, **edge(leaf))
        stop = threading.Event()
        problems: list[str] = []
        served = [0, 0]

        def load(number: int) -> None:
            while not stop.is_set():
                try:
                    works(process, authority)
                except Exception as error:  # noqa: BLE001 - any is one too many
                    problems.append(repr(error))
                served[number] += 1

        threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                other = authority.leaf()
                self.swap(leaf, other)
            self.until_served(process, authority, other)
        finally:
            stop.set()
            for thread in threads:
                thread.join(WAIT_S)
        assert not problems
        assert min(served) > 10
        counters = process.counters()
        assert counters["tls_handshake_failed"] == 0
        assert counters["certificate_reload_failed"] == 0
        assert counters["certificates_reloaded"] >= 1

    def test_a_session_outlives_its_certificate(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        leaf, other = authority.leaf(), authority.leaf()
        process = gateway([web], cluster=CLUSTER, **edge(leaf))
        session = ticket(process.port, authority)
        self.swap(leaf, other)
        self.until_served(process, authority, other)
        with TlsClient(process.port, authority, session=session) as client:
            assert client.tls.resumed
            assert client.get()[0] == 200

    def test_a_broken_pair(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """A key that is another's: what was served goes on, until a good pair is there."""
        leaf = authority.leaf()
        serial = leaf.x509.serial_number
        process = gateway([web], workers=2, cluster=CLUSTER, **edge(leaf))
        replace_file(leaf.private_key, key_pem(authority.leaf().issued.key), 0o600)
        process.wait_for_counter("certificate_reload_failed", 2)
        assert "not the key of the first certificate" in process.output
        assert self.serial(process, authority) == serial
        other = authority.leaf()
        self.swap(leaf, other)
        process.wait_for_counter("certificates_reloaded", 2)
        assert self.serial(process, authority) == other.x509.serial_number


class Watched:
    """One gateway with a certificate for each behaviour of a responder."""

    def __init__(
        self, authority: Authority, faults: tuple[Fault, ...], directory: Path, stack: ExitStack
    ) -> None:
        self.directory = directory
        self.authority = authority
        self.responders: dict[Fault, Responder] = {}
        self.leaves: dict[Fault, Leaf] = {}
        for fault in faults:
            leaf = self.leaves[fault] = authority.leaf(f"{fault}.test")
            self.responders[fault] = stack.enter_context(
                Responder(authority.ca, authority.ca, [leaf.x509])
            )

    def start(self, gateway: StartGateway, web: RawBackend, **table: Any) -> GatewayProcess:
        entries = [
            self.leaves[fault].entry(ocsp="fetch", ocsp_url=responder.url)
            for fault, responder in self.responders.items()
        ]
        return gateway(
            [web],
            cluster=CLUSTER,
            gateway={"state_directory": str(self.directory)},
            **edge(*entries, **table),
        )

    def state(self, fault: Fault) -> State:
        return State(str(self.directory), fingerprint(self.leaves[fault].x509))

    def hurry(self, fault: Fault) -> None:
        """Let the next fetch be due."""
        state = self.state(fault)
        known = state.known()
        assert known is not None
        known.next_at = 0.0
        state.save(known, None)

    def wait_for_failures(self, fault: Fault, in_row: int) -> None:
        """Return when what is on disk speaks of them."""
        pause = threading.Event()
        for _ in range(1000):
            known = self.state(fault).known()
            if known is not None and known.failures_in_row == in_row:
                return
            pause.wait(0.01)
        raise TimeoutError(fault)

    def staple(self, process: GatewayProcess, fault: Fault) -> bytes:
        """What is stapled; the connection works."""
        name = f"{fault}.test"
        with TlsClient(process.port, self.authority, name=name, staple=True) as client:
            assert client.get()[0] == 200
            return client.tls.staple


class TestResponders:
    def test_that_lie_from_the_start(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        tmp_path: Path,
        stack: ExitStack,
    ) -> None:
        """None of it is stapled, each connection works, and one that tells the truth is stapled."""
        watched = Watched(authority, FAULTS, tmp_path / "state", stack)
        for fault, responder in watched.responders.items():
            responder.behaviour.fault = fault
        process = watched.start(gateway, web)
        for fault in LIES:
            assert watched.staple(process, fault) == b"", fault
            known = watched.state(fault).known()
            assert known is not None
            assert known.failures == 1
            assert known.revoked is (fault == "revoked")
        assert watched.staple(process, "none") != b""
        counters = process.counters()
        assert counters["ocsp_fetches"] == len(FAULTS)
        assert counters["ocsp_failures"] == len(LIES)
        assert counters["ocsp_staples"] == 1
        assert counters["ocsp_staples_missing"] == len(LIES)
        assert counters["ocsp_revoked"] == 1
        revoked = watched.leaves["revoked"].certificate
        assert f"{revoked}: IS REVOKED" in process.output

    def test_that_lie_later(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        tmp_path: Path,
        stack: ExitStack,
    ) -> None:
        """The last good response stays, except where the news is that all is lost."""
        watched = Watched(authority, LIES, tmp_path / "state", stack)
        process = watched.start(gateway, web)
        good = {fault: watched.staple(process, fault) for fault in LIES}
        assert all(good.values())
        for fault, responder in watched.responders.items():
            responder.behaviour.fault = fault
            watched.hurry(fault)
        for fault in LIES:
            watched.wait_for_failures(fault, 1)
        assert process.counters()["ocsp_failures"] == len(LIES)
        for fault in LIES:
            found = watched.staple(process, fault)
            assert found == (b"" if fault == "revoked" else good[fault]), fault
        counters = process.counters()
        assert counters["ocsp_revoked"] == 1
        assert "IS REVOKED" in process.output
        # Who comes to his senses is believed again.
        for fault, responder in watched.responders.items():
            responder.behaviour.fault = "none"
            watched.hurry(fault)
        process.wait_for_counter("ocsp_fetches", 3 * len(LIES))
        process.wait_for_counter("ocsp_staples", len(LIES))
        assert all(watched.staple(process, fault) != good[fault] for fault in LIES)

    @pytest.mark.parametrize("trouble", ["slow", "down"])
    def test_that_can_not_be_had(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        tmp_path: Path,
        stack: ExitStack,
        trouble: str,
    ) -> None:
        """The start does not wait for it beyond ``ocsp_wait``, and then it is asked again."""
        watched = Watched(authority, ("none",), tmp_path / "state", stack)
        responder = watched.responders["none"]
        if trouble == "slow":
            responder.behaviour = Behaviour(delay_s=60.0)
        else:
            responder.__exit__(None, None, None)
        process = watched.start(gateway, web, ocsp_wait="200ms")
        assert watched.staple(process, "none") == b""
        assert process.counters()["ocsp_staples_missing"] == 1
        if trouble == "down":
            # The first attempt may have ended with ocsp_wait.
            watched.wait_for_failures("none", 1)
            assert "OCSP responder http://127.0.0.1:" in process.output
            leaf = watched.leaves["none"]
            port = responder.port
            again = Responder(authority.ca, authority.ca, [leaf.x509], port=port)
            stack.enter_context(again)
            watched.hurry("none")
            process.wait_for_counter("ocsp_staples", 1)
            assert watched.staple(process, "none") != b""

    def test_a_restart_staples_at_once(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        tmp_path: Path,
        stack: ExitStack,
    ) -> None:
        """From disk, with the responder down; not what was tampered with there."""
        watched = Watched(authority, ("none", "garbage"), tmp_path / "state", stack)
        process = watched.start(gateway, web)
        kept = watched.staple(process, "none")
        assert kept
        process.signal()
        assert process.wait() == 0
        for responder in watched.responders.values():
            responder.behaviour.fault = "http-500"
        state = watched.state("garbage")
        known = state.known()
        assert known is not None
        state.save(known, os.urandom(1000))
        process = watched.start(gateway, web)
        assert watched.staple(process, "none") == kept
        assert watched.staple(process, "garbage") == b""
        assert "the response kept on disk is not served" in process.output

    def test_a_staple_that_is_out_of_date_is_dropped(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """And one in a file is taken over when it is replaced."""
        leaf = authority.leaf()
        file = authority.staple(leaf, validity=timedelta(seconds=2))
        process = gateway(
            [web], cluster=CLUSTER, **edge(leaf.entry(ocsp="file", ocsp_file=str(file)))
        )

        def staple() -> bytes:
            with TlsClient(process.port, authority, staple=True) as client:
                assert client.get()[0] == 200
                return client.tls.staple

        process.wait_for_counter("ocsp_staples_missing", 1)
        assert staple() == b""
        assert "out of date" in process.output
        replace_file(file, authority.response(leaf), 0o644)
        process.wait_for_counter("ocsp_staples", 1)
        assert staple() == file.read_bytes()

    def test_must_staple(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """A certificate that asks for a staple is not shown without: clients would only say so."""
        leaf = authority.leaf(must_staple=True)
        file = authority.staple(leaf, this_update=datetime.now(UTC) - timedelta(days=2))
        process = gateway(
            [web], cluster=CLUSTER, **edge(leaf.entry(ocsp="file", ocsp_file=str(file)))
        )
        with pytest.raises(Alert, match="internal error"):
            works(process, authority)
        replace_file(file, authority.response(leaf), 0o644)
        process.wait_for_counter("ocsp_staples", 1)
        works(process, authority, staple=True)


def test_a_worker_is_killed(web: RawBackend, authority: Authority, tmp_path: Path) -> None:
    """Its successor knows the tickets: their keys are older than both."""
    process = GatewayProcess(config_for([web], cluster=CLUSTER, **edge(authority.leaf())), tmp_path)
    try:
        session = ticket(process.port, authority)
        (before,) = process.worker_pids()
        seen = len(process.lines.seen)
        os.kill(before, signal.SIGKILL)
        process.lines.wait_for(lambda line: "restarting" in line, seen)
        with TlsClient(process.port, authority, session=session) as client:
            assert client.tls.resumed
            assert client.get()[0] == 200
        (after,) = process.worker_pids()
        assert after != before
        process.signal()
        assert process.wait() == 0
    finally:
        process.kill()
