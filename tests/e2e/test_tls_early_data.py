"""Early data (0-RTT): what is forwarded, what waits, what is a copy (RFC 8446 2.3, RFC 8470)."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import pytest
from OpenSSL import SSL

from gateway.demo.plain import Http2Server, Message, response

from .conftest import FindTool, Site, StartGateway, Stopping
from .processes import GatewayProcess
from .raw import RawBackend, RawConnection, echo
from .tls import (
    CLUSTER,
    GET,
    H2,
    Authority,
    TlsClient,
    connect,
    edge,
    run,
    ticket,
    worker_of,
)

POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
EARLY = b"\r\nearly-data: 1\r\n"


def script(connection: RawConnection) -> None:
    """Answer with the request; 425 to early data at /refused, and to all at /never."""
    while True:
        head, body = connection.request()
        status, answer = b"200 OK", head + body
        early = EARLY in head.lower()
        if b" /never " in head or (early and b" /refused " in head):
            status, answer = b"425 Too Early", b""
        connection.send(
            b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(answer), answer)
        )


TABLE = {"early_data": "safe"}
ROUTES = [{"match": {"path": "/post"}, "cluster": "main", "early_data": ["POST"]}]
SCRIPT = script


@pytest.fixture
def web(stopping: Stopping) -> RawBackend:
    """Answers with the request that it got."""
    return stopping(RawBackend(echo))


def serve(gateway: StartGateway, backend: Any, authority: Authority, **more: Any) -> GatewayProcess:
    table = more.pop("table", {})
    tables: dict[str, Any] = {"cluster": CLUSTER, **more}
    return gateway([backend], **tables, **edge(authority.leaf(), early_data="safe", **table))


class Early:
    """A client that has sent its first flight, and holds back what completes the handshake."""

    def __init__(
        self,
        process: GatewayProcess,
        authority: Authority,
        data: bytes,
        session: SSL.Session | None = None,
        **options: Any,
    ) -> None:
        session = session or ticket(process.port, authority)
        self.client = TlsClient(
            process.port, authority, session=session, early=data, shake_hands=False, **options
        )
        self.flight = self.client.tls.outgoing()
        self.client.tls.sock.sendall(self.flight)

    def finish(self) -> TlsClient:
        """Complete the handshake."""
        self.client.tls.handshake()
        return self.client

    def __enter__(self) -> Early:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


class TestOpenSsl:
    @pytest.fixture
    def call(self, tool: FindTool, authority: Authority, tmp_path: Path) -> Any:
        """What s_client prints that begins with ``data`` as early data."""
        saved, file = tmp_path / "session", tmp_path / "early"

        def call(process: GatewayProcess, data: bytes) -> str:
            fixed = (
                *(tool("openssl"), "s_client", "-connect", process.address, "-ign_eof"),
                *("-CAfile", authority.file, "-servername", "localhost"),
            )
            closing = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            run((*fixed, "-sess_out", saved), given=closing)
            file.write_bytes(data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            return run((*fixed, "-sess_in", saved, "-early_data", file))

        return call

    def test_a_get_is_forwarded(self, site: Site, authority: Authority, call: Any) -> None:
        process = site.process
        output = call(process, GET)
        assert "Early data was accepted" in output
        assert "Reused, TLSv1.3" in output
        assert "HTTP/1.1 200 OK" in output
        assert site.web.received.count(EARLY) == 1
        assert process.counters()["early_data_forwarded"] == 1

    def test_a_post_waits(self, site: Site, authority: Authority, call: Any) -> None:
        process = site.process
        output = call(process, POST)
        assert "Early data was accepted" in output
        assert "HTTP/1.1 200 OK" in output
        assert site.web.received.count(b"POST / ") == 1
        assert b"early-data" not in site.web.received
        counters = process.counters()
        assert counters["early_data_held"] == 1
        assert counters["early_data_forwarded"] == 0

    def test_it_is_refused_unless_asked_for(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """Tickets do not permit it, so no client tries."""
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf()))
        session = ticket(process.port, authority)
        with (
            pytest.raises(AssertionError),
            TlsClient(process.port, authority, session=session, early=GET),
        ):
            pass


class TestWhatWaits:
    def test_a_get_is_answered_before_the_handshake_is_over(
        self, site: Site, authority: Authority
    ) -> None:
        process = site.process
        with Early(process, authority, GET) as early:
            connection = site.web.connection(0)
            process.wait_for_counter("early_data_forwarded", 1)
            # All of the server's flight and the answer are here, and nothing more was sent.
            process.wait_for_counter("responses_2xx", 2)
            assert process.counters()["tls_handshakes"] == 1
            client = early.finish()
            status, _, body = client.response()
            assert status == 200
            assert EARLY in body
            assert connection.received.count(EARLY) == 1
            # The same connection goes on, and says nothing of early data.
            assert EARLY not in client.get()[2]

    def test_a_post_is_sent_when_the_handshake_is_over(
        self, site: Site, authority: Authority
    ) -> None:
        process = site.process
        with Early(process, authority, POST) as early:
            process.wait_for_counter("early_data_held", 1)
            assert b"POST" not in site.web.received
            status, _, body = early.finish().response()
            assert status == 200
            assert body.startswith(b"POST / ")
            assert body.endswith(b"body")
            assert EARLY not in body
        assert site.web.received.count(b"POST / ") == 1

    def test_requests_in_a_row_keep_their_order(self, site: Site, authority: Authority) -> None:
        """Pipelined: what follows a request that waits waits, too."""
        process = site.process
        data = GET.replace(b"/ ", b"/1 ", 1) + POST + GET.replace(b"/ ", b"/2 ", 1)
        with Early(process, authority, data) as early:
            client = early.finish()
            bodies = [client.response()[2] for _ in range(3)]
        assert [body.split(b" HTTP")[0] for body in bodies] == [b"GET /1", b"POST /", b"GET /2"]

    def test_a_request_that_begins_early_and_ends_late(
        self, site: Site, authority: Authority
    ) -> None:
        """Half of its head is early data; it came before the handshake was over for all that
        anybody can tell, or after: never is it lost."""
        process = site.process
        with Early(process, authority, GET[:20]) as early:
            client = early.finish()
            client.send(GET[20:])
            assert client.response()[0] == 200
        assert site.web.received.count(b"GET / ") == 2  # with that of the ticket

    def test_who_never_completes_the_handshake(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        process = serve(gateway, web, authority, table={"handshake_timeout": "300ms"})
        with Early(process, authority, POST) as early:
            process.wait_for_counter("tls_handshake_timeout", 1)
            while early.client.tls.sock.recv(65536):
                pass
        assert b"POST" not in web.received
        process.wait_until_idle()

    def test_who_leaves_within_the_handshake(self, site: Site, authority: Authority) -> None:
        process = site.process
        with Early(process, authority, POST):
            process.wait_for_counter("early_data_held", 1)
        process.wait_until_idle()
        assert b"POST" not in site.web.received

    def test_more_than_is_allowed(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """A client that keeps to its ticket cannot send it; one that does not is cut off."""
        process = serve(gateway, web, authority, table={"max_early_data": 100})
        session = ticket(process.port, authority)
        with (
            pytest.raises(AssertionError),
            TlsClient(process.port, authority, session=session, early=GET + bytes(200)),
        ):
            pass
        with Early(process, authority, GET) as early:
            assert EARLY in early.finish().response()[2]

    def test_a_route_says_what_is_safe(self, site: Site, authority: Authority) -> None:
        process = site.process
        data = (POST + GET).replace(b" / ", b" /post ")
        with Early(process, authority, data) as early:
            process.wait_for_counter("early_data_held", 1)
            client = early.finish()
            assert EARLY in client.response()[2]
            assert EARLY not in client.response()[2]

    def test_a_client_certificate_holds_for_early_data(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """It is the one of the session that is resumed."""
        table = {"client_auth": "required", "client_ca": str(authority.file)}
        process = serve(gateway, web, authority, table=table)
        leaf = authority.leaf("client.test", client=True)
        session = ticket(process.port, authority, certificate=leaf)
        with Early(process, authority, GET, session) as early:
            body = early.finish().response()[2]
        assert EARLY in body
        assert b';Subject="CN=client.test"' in body

    def test_http2(self, gateway: StartGateway, stopping: Stopping, authority: Authority) -> None:
        seen: list[Message] = []

        def answer(request: Message) -> Message:
            seen.append(request)
            return response(200, b"x")

        server = stopping(Http2Server(answer))
        process = serve(gateway, server, authority, cluster={"idle_timeout": "500ms"})
        with TlsClient(process.port, authority, protocols=(H2,)) as first:
            first.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            first.until(b"\0\0\0\4\1\0\0\0\0")
            session = first.tls.session
        client = h2.connection.H2Connection(h2.config.H2Configuration())
        client.initiate_connection()
        for number, method in enumerate(("GET", "POST")):
            fields = [(":method", method), (":scheme", "https"), (":path", "/")]
            client.send_headers(1 + 2 * number, [*fields, (":authority", "a.test")], True)
        early = Early(process, authority, client.data_to_send(), session, protocols=(H2,))
        with early:
            process.wait_for_counter("early_data_held", 1)
            process.wait_for_counter("responses_2xx", 1)
            assert [request.get(":method") for request in seen] == ["GET"]
            finished = early.finish()
            ended: set[int] = set()
            while len(ended) < 2:
                for event in client.receive_data(finished.sock.recv(65536)):
                    if isinstance(event, h2.events.StreamEnded):
                        assert event.stream_id is not None
                        ended.add(event.stream_id)
        assert [request.get("early-data") for request in seen] == ["1", None]
        assert seen[1].get(":method") == "POST"


class TestReplay:
    def test_a_flight_that_is_sent_again(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """The octets of a client's first flight, on many connections to both workers: the request
        reaches the endpoint once."""
        process = serve(gateway, web, authority, workers=2)
        session = ticket(process.port, authority)
        early = GET.replace(b"/ ", b"/once ", 1)
        with TlsClient(
            process.port, authority, session=session, early=early, shake_hands=False
        ) as client:
            flight = client.tls.outgoing()
        copies: list[socket.socket] = []
        try:
            workers: set[int] = set()
            while len(copies) < 8 or len(workers) < 2:
                copies.append(connect(process.port))
                copies[-1].sendall(flight)
                workers.add(worker_of(process, copies[-1]))
            process.wait_for_counter("early_data_replayed", len(copies) - 1)
            process.wait_for_counter("responses_2xx", 2)
        finally:
            for sock in copies:
                sock.close()
        process.wait_until_idle()
        assert web.received.count(b"GET /once ") == 1
        assert process.counters()["early_data_forwarded"] == 1

    def test_an_honest_client_after_a_copy(self, site: Site, authority: Authority) -> None:
        """Who was overtaken by a copy of its own flight is asked for the request once more, after
        the handshake: a round trip, and no harm."""
        process = site.process
        session = ticket(process.port, authority)
        with TlsClient(
            process.port, authority, session=session, early=GET, shake_hands=False
        ) as client:
            flight = client.tls.outgoing()
            with connect(process.port) as copy:
                copy.sendall(flight)
                process.wait_for_counter("early_data_forwarded", 1)
                client.tls.sock.sendall(flight)
                client.tls.handshake()
                assert client.tls.resumed
                assert client.get("/again")[0] == 200
        assert process.counters()["early_data_replayed"] == 1
        assert site.web.received.count(b"GET /again ") == 1

    def test_a_ticket_that_is_used_twice(self, site: Site, authority: Authority) -> None:
        """By its owner, in two flights: both are new."""
        process = site.process
        session = ticket(process.port, authority)
        for _ in range(2):
            with Early(process, authority, GET, session) as early:
                assert EARLY in early.finish().response()[2]
        assert process.counters()["early_data_replayed"] == 0


class TestTooEarly:
    def test_it_is_asked_again_after_the_handshake(self, site: Site, authority: Authority) -> None:
        process, web = site
        with Early(process, authority, at("/refused")) as early:
            process.wait_for_counter("too_early_retried", 1)
            assert web.received.count(b"GET /refused ") == 1
            status, _, body = early.finish().response()
            assert status == 200
            assert body.startswith(b"GET /refused ")
            assert EARLY not in body
        assert web.received.count(b"GET /refused ") == 2
        assert web.received.count(EARLY) == 1
        assert process.counters()["too_early_retried"] == 1

    def test_once(self, site: Site, authority: Authority) -> None:
        """An endpoint that always says so is not asked for ever."""
        with Early(site.process, authority, at("/never")) as early:
            assert early.finish().response()[0] == 425
        assert site.web.received.count(b"GET /never ") == 2

    def test_what_the_client_says_itself_is_passed_on(
        self, site: Site, authority: Authority
    ) -> None:
        """A client that is a proxy knows how to ask again (RFC 8470 section 5.2)."""
        process, web = site
        asked = at("/refused").replace(b"\r\n\r\n", b"\r\nEarly-Data: 1\r\n\r\n")
        with Early(process, authority, asked) as early:
            assert early.finish().response()[0] == 425
        with TlsClient(process.port, authority) as client:
            client.send(asked)
            assert client.response()[0] == 425
        assert web.received.count(b"GET /refused ") == 2
        assert web.received.lower().count(EARLY) == 2
        assert process.counters()["too_early_retried"] == 0


def at(path: str) -> bytes:
    return GET.replace(b"/ ", path.encode() + b" ", 1)
