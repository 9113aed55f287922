"""TLS when something is wrong: replayed flights, half-open handshakes, files that change,
responders that lie, endpoints that are not who they should be."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.certs.make import make_leaf, make_ocsp_response
from gateway.certs.responder import FAULTS, Fault, Responder

from .conftest import StartGateway, Stopping
from .processes import WAIT_S, GatewayProcess
from .raw import RawBackend, RawClient, echo
from .tls_client import Authority, Tls, make_authority

GET = b"GET /r HTTP/1.1\r\nhost: localhost\r\n\r\n"
HTTP1 = {"protocol": "http1", "idle_timeout": "500ms"}

StartTls = Callable[..., GatewayProcess]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "certs")


@pytest.fixture
def tls(gateway: StartGateway, authority: Authority) -> StartTls:
    """Start a gateway whose listener speaks TLS: ``tls(endpoints, table, ...)``, ``table`` being
    added to its ``[tls.NAME]``."""

    def start(endpoints: Any, table: dict[str, Any] | None = None, **more: Any) -> GatewayProcess:
        edge = {"certificates": [authority.table()], **(table or {})}
        more.setdefault("cluster", HTTP1)
        listener = {"tls": "edge", **more.pop("listener", {})}
        return gateway(endpoints, listener=listener, config={"tls": {"edge": edge}}, **more)

    return start


class TestHandshakes:
    def test_half_open_ones_by_the_thousand(
        self, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        process = tls([stopping(RawBackend(echo))], {"max_handshakes": 100})
        client = Tls(authority)
        hello = client.connection()
        with contextlib.suppress(Exception):
            hello.do_handshake()
        half = hello.bio_read(65536)[:100]
        socks = []
        with contextlib.ExitStack() as stack:
            for number in range(2000):
                sock = socket.create_connection(("127.0.0.1", process.port), WAIT_S)
                stack.callback(sock.close)
                if number % 2:
                    sock.sendall(half)
                socks.append(sock)
                if number % 500 == 499:
                    with client.ask(process.port, GET) as answer:
                        assert answer.octets.startswith(b"HTTP/1.1 200 ")
            assert process.counters()["tls_handshakes_evicted"] >= 1900
        assert process.wait_until_idle() == {}

    @pytest.mark.parametrize(
        "octets",
        [
            GET,
            b"\x16\x03\x01\x40\x01" + bytes(100),
            b"\x16\x03\x01\x00\x05\x01\x00\x50\x00\x00",
            b"\x15\x03\x01\x00\x02\x02\x28",
            bytes(1000),
            b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c\x03\x03" + bytes(32) + b"\xff" * 12,
        ],
    )
    def test_what_is_no_client_hello(
        self, octets: bytes, tls: StartTls, stopping: Stopping
    ) -> None:
        process = tls([stopping(RawBackend(echo))])
        with RawClient(process.port, octets) as client:
            rest = client.rest()
        assert rest == b"" or (len(rest) == 7 and rest.startswith(b"\x15\x03\x03\x00\x02\x02"))
        assert process.counters()["tls_handshake_failed"] == 1

    def test_a_slow_one_times_out(self, tls: StartTls, stopping: Stopping) -> None:
        process = tls([stopping(RawBackend(echo))], {"handshake_timeout": "300ms"})
        with RawClient(process.port, b"\x16\x03\x01\x01\x00\x01") as client:
            assert client.rest() == b""
        assert process.counters()["tls_handshake_timeout"] == 1


class TestFiles:
    def test_swapped_under_load(
        self, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        process = tls([stopping(RawBackend(echo))])
        stop = threading.Event()
        failures: list[BaseException] = []
        served: set[int] = set()

        def load() -> None:
            client = Tls(authority)
            try:
                while not stop.is_set():
                    with client.ask(process.port, GET) as answer:
                        found = answer.connection.get_peer_certificate(as_cryptography=True)
                        assert found is not None
                        served.add(found.serial_number)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails
                failures.append(error)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            fresh = authority.leaf()
            before = process.counters()["certificates_reloaded"]
            process.wait_for_counter("certificates_reloaded", before + 1)
            while fresh.certificate.serial_number not in served and not failures:
                threading.Event().wait(0.01)
        # A key that does not fit: refused, and the old pair stays.
        old = (authority.directory / "edge.key").read_bytes()
        stranger = make_leaf(authority.ca, ["localhost"])
        stranger.write(authority.directory / "x.pem", authority.directory / "edge.key")
        process.wait_for_counter("certificate_reload_failed", 1)
        process.lines.wait_for(lambda line: "edge.key: not the key of" in line)
        (authority.directory / "edge.key").write_bytes(old)
        process.wait_for_counter("certificates_reloaded", 3)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert process.counters()["tls_handshake_failed"] == 0


class TestResponders:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_none_is_an_outage(
        self, fault: Fault, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        edge = authority.leaf()
        with Responder(authority.ca, authority.ca, [edge.certificate]) as responder:
            responder.behaviour.fault = fault
            table = authority.table(ocsp="fetch", ocsp_url=responder.url)
            process = tls([stopping(RawBackend(echo))], {"certificates": [table]})
            with Tls(authority).ask(process.port, GET) as answer:
                assert answer.octets.startswith(b"HTTP/1.1 200 ")
            counters = process.counters()
        good = fault == "none"
        assert counters["ocsp_staples"] == good
        assert counters["ocsp_fetches"] == 1
        assert counters["ocsp_failures"] == (not good)
        assert counters["ocsp_revoked"] == (fault == "revoked")
        if fault == "revoked":
            process.lines.wait_for(lambda line: "IS REVOKED" in line)
        elif not good:
            process.lines.wait_for(lambda line: f"OCSP responder {responder.url}: " in line)

    def test_a_slow_one_does_not_hold_up_the_start(
        self, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        edge = authority.leaf()
        with Responder(authority.ca, authority.ca, [edge.certificate]) as responder:
            responder.behaviour.delay_s = 60.0
            table = authority.table(ocsp="fetch", ocsp_url=responder.url)
            process = tls(
                [stopping(RawBackend(echo))], {"certificates": [table], "ocsp_wait": "200ms"}
            )
            with Tls(authority).ask(process.port, GET) as answer:
                assert answer.octets.startswith(b"HTTP/1.1 200 ")

    def test_must_staple_without_one(
        self, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        edge = authority.leaf(must_staple=True)
        with Responder(authority.ca, authority.ca, [edge.certificate]) as responder:
            responder.behaviour.fault = "http-500"
            table = authority.table(ocsp="fetch", ocsp_url=responder.url)
            process = tls([stopping(RawBackend(echo))], {"certificates": [table]})
            with (
                pytest.raises(Exception, match="internal error"),
                Tls(authority).ask(process.port, GET),
            ):
                pass


@contextlib.contextmanager
def tls_server(
    files: list[Path], script: Callable[[ssl.SSLSocket], None], **how: Any
) -> Iterator[tuple[str, ssl.SSLContext]]:
    """An endpoint by Python's ``ssl``: address and context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[0], files[1])
    context.set_alpn_protocols(["http/1.1"])
    for name, value in how.items():
        setattr(context, name, value)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(WAIT_S)

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            plain.settimeout(WAIT_S)
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as sock:
                script(sock)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}", context
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


class Address:
    def __init__(self, address: str) -> None:
        self.address = address


def answer_all(sock: ssl.SSLSocket) -> None:
    """A body for each request, until the client closes."""
    received = b""
    while data := sock.recv(65536):
        received += data
        while b"\r\n\r\n" in received:
            _, _, received = received.partition(b"\r\n\r\n")
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


class TestEndpoints:
    def test_resumed_with_our_certificate(
        self, gateway: StartGateway, authority: Authority
    ) -> None:
        authority.leaf("us", ("gateway.test",), client=True)
        files = [authority.directory / name for name in ("edge.pem", "edge.key")]
        ours = [str(authority.directory / name) for name in ("us.pem", "us.key")]
        seen: list[Any] = []

        def script(sock: ssl.SSLSocket) -> None:
            seen.append((sock.getpeercert(), sock.session_reused))
            answer_all(sock)

        with tls_server(files, script, verify_mode=ssl.CERT_REQUIRED) as (address, context):
            context.load_verify_locations(authority.file)
            cluster = {
                "idle_timeout": "50ms",
                "tls": {"ca": authority.file, "certificate": ours[0], "private_key": ours[1]},
            }
            process = gateway([Address(address)], cluster=cluster)
            for number in range(3):
                with RawClient(process.port, GET) as client:
                    assert client.response()[0] == 200
                process.wait_for_counter("upstream_connections_open", 0)
                assert process.counters()["upstream_tls_handshakes"] == number + 1
            assert process.counters()["upstream_tls_resumptions"] == 2
        assert [reused for _, reused in seen] == [False, True, True]
        assert "gateway.test" in str(seen[0][0])

    @pytest.mark.parametrize(
        ("tls_table", "reason"),
        [
            ({}, b"self-signed certificate in certificate chain"),
            ({"server_name": "other.test"}, b"hostname mismatch"),
            ({"require_staple": True}, b"stapled no OCSP response"),
        ],
    )
    def test_the_wrong_one(
        self,
        tls_table: dict[str, Any],
        reason: bytes,
        gateway: StartGateway,
        authority: Authority,
    ) -> None:
        files = [authority.directory / name for name in ("edge.pem", "edge.key")]
        if tls_table:
            tls_table = {"ca": authority.file, **tls_table}
        with tls_server(files, answer_all) as (address, _):
            process = gateway([Address(address)], cluster={"tls": tls_table})
            with RawClient(process.port, GET) as client:
                status, _, body = client.response()
            assert status >= 500
            assert reason in body
            assert process.counters()["upstream_tls_failed"] >= 1

    def test_verify_may_be_off(self, gateway: StartGateway, authority: Authority) -> None:
        files = [authority.directory / name for name in ("edge.pem", "edge.key")]
        with tls_server(files, answer_all) as (address, _):
            process = gateway([Address(address)], cluster={"tls": {"verify": False}})
            with RawClient(process.port, GET) as client:
                assert client.response()[0] == 200

    def test_a_staple_is_demanded_and_comes(
        self, gateway: StartGateway, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        edge = authority.leaf()
        file = authority.directory / "edge.ocsp"
        file.write_bytes(
            make_ocsp_response(edge.certificate, authority.ca.certificate, authority.ca)
        )
        table = authority.table(ocsp="file", ocsp_file=str(file))
        behind = tls([stopping(RawBackend(echo))], {"certificates": [table]})
        cluster = {
            "tls": {"ca": authority.file, "require_staple": True},
            "idle_timeout": "200ms",
        }
        process = gateway([Address(f"https://127.0.0.1:{behind.port}")], cluster=cluster)
        with RawClient(process.port, GET) as client:
            assert client.response()[0] == 200
        assert process.wait_until_idle() == {}

    def test_one_that_never_answers(self, gateway: StartGateway) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"https://127.0.0.1:{silent.getsockname()[1]}"
            process = gateway([Address(address)], cluster={"connect_timeout": "300ms"})
            with RawClient(process.port, GET) as client:
                status, _, body = client.response()
            assert status in (503, 504)
            assert b"no TLS handshake within 0.3 s" in body

    def test_a_response_cut_off_is_not_whole(
        self, gateway: StartGateway, authority: Authority
    ) -> None:
        files = [authority.directory / name for name in ("edge.pem", "edge.key")]

        def cut(sock: ssl.SSLSocket) -> None:
            sock.recv(65536)
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nthe beginning")
            plain = socket.socket(fileno=sock.detach())
            plain.close()

        with tls_server(files, cut) as (address, _):
            process = gateway([Address(address)], cluster={"tls": {"ca": authority.file}})
            with RawClient(process.port, GET) as client:
                with contextlib.suppress(ConnectionResetError):
                    client.rest()
                assert not client.received.endswith(b"0\r\n\r\n")
            process.wait_for_counter("reset_by_upstream", 1)
