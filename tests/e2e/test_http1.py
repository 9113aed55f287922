"""HTTP/1.1 on both sides of a gateway that runs: what RFC 9112 asks of a proxy."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from .conftest import StartGateway, Stopping
from .raw import RawBackend, RawClient, RawConnection, Script, echo

HTTP1 = {"protocol": "http1", "idle_timeout": "400ms"}

StartRaw = Callable[[Script], RawBackend]


@pytest.fixture
def raw(stopping: Stopping) -> StartRaw:
    return lambda script: stopping(RawBackend(script))


def get(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: a.test", *lines, "", "")).encode()


class TestClients:
    def test_keep_alive_and_reuse(self, gateway: StartGateway, raw: StartRaw) -> None:
        """Many requests of one client go over one connection to the endpoint."""
        backend = raw(echo)
        process = gateway([backend], cluster=HTTP1)
        with RawClient(process.port) as client:
            for number in range(20):
                client.send(get(f"/{number}"))
                status, _, body = client.response()
                assert status == 200
                assert body.startswith(b"GET /%d HTTP/1.1\r\nhost: a.test\r\n" % number)
        assert len(backend.connections) == 1

    def test_pipelined_requests_are_answered_in_order(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        with RawClient(process.port, b"".join(get(f"/{i}") for i in range(50))) as client:
            for number in range(50):
                assert client.response()[2].startswith(b"GET /%d " % number)

    def test_a_pipelined_request_waits_for_the_response_before(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        go = threading.Event()

        def script(connection: RawConnection) -> None:
            if connection.number == 0:
                connection.head()
                go.wait(20)
                connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1")
            echo(connection)

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        with RawClient(process.port, get("/first") + get("/second")) as client:
            backend.connection(0)
            process.wait_for_counter("requests", 1)
            assert b"/second" not in backend.received
            go.set()
            assert client.response()[2] == b"1"
            assert client.response()[2].startswith(b"GET /second ")

    def test_http10(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        with RawClient(process.port, b"GET /old HTTP/1.0\r\n\r\n") as client:
            answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nconnection: close\r\n" in answer
        assert b"GET /old HTTP/1.1\r\n" in answer

    def test_http10_keep_alive_and_no_chunks(self, gateway: StartGateway, raw: StartRaw) -> None:
        """A client of HTTP/1.0 gets a body that ends with the connection in place of chunks."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            connection.head()
            connection.send(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            )

        process = gateway([raw(script)], cluster=HTTP1)
        asked = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        with RawClient(process.port, asked) as client:
            status, head, body = client.response()
            assert (status, body) == (200, b"ok")
            assert b"\r\nconnection: keep-alive\r\n" in head
            client.send(asked)
            assert client.rest().endswith(b"\r\n\r\nabc")

    def test_connection_close(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        with RawClient(process.port, get("/", "Connection: close")) as client:
            assert b"\r\nconnection: close\r\n" in client.rest()

    def test_absolute_target(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        asked = b"GET http://other.test:81/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n"
        with RawClient(process.port, asked) as client:
            body = client.response()[2]
        assert body.startswith(b"GET /x?y HTTP/1.1\r\nhost: other.test:81\r\n")
        assert b"a.test" not in body

    def test_upgrade_to_h2c_is_ignored(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        lines = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
        with RawClient(process.port, get("/", *lines)) as client:
            status, _, body = client.response()
        assert status == 200
        assert b"upgrade" not in body.lower()
        assert b"http2-settings" not in body.lower()

    def test_options_of_the_server(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway([raw(echo)], cluster=HTTP1, route={"match": {"path": "*"}})
        with RawClient(process.port, b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n") as client:
            assert client.response()[2].startswith(b"OPTIONS * HTTP/1.1\r\n")

    def test_head(self, gateway: StartGateway, raw: StartRaw) -> None:
        def script(connection: RawConnection) -> None:
            while True:
                connection.head()
                connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port) as client:
            for _ in range(3):
                client.send(get("/").replace(b"GET", b"HEAD"))
                head = client.until(b"\r\n\r\n")
                assert b"\r\ncontent-length: 1000\r\n" in head

    @pytest.mark.parametrize("status", [204, 304])
    def test_responses_without_a_body(
        self, gateway: StartGateway, raw: StartRaw, status: int
    ) -> None:
        def script(connection: RawConnection) -> None:
            while True:
                connection.head()
                connection.send(b"HTTP/1.1 %d X\r\netag: a\r\n\r\n" % status)

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port) as client:
            for _ in range(3):
                client.send(get("/"))
                head = client.until(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 %d " % status)
                assert b"content-length" not in head
                assert b"transfer-encoding" not in head

    def test_a_silent_connection_is_closed(self, gateway: StartGateway, raw: StartRaw) -> None:
        process = gateway(
            [raw(echo)], cluster=HTTP1, config={"http1": {"keepalive_timeout": "100ms"}}
        )
        with RawClient(process.port, get("/")) as client:
            assert client.response()[0] == 200
            assert client.rest() == b""

    def test_a_head_that_does_not_end(self, gateway: StartGateway, raw: StartRaw) -> None:
        backend = raw(echo)
        process = gateway([backend], cluster=HTTP1, config={"http1": {"header_timeout": "100ms"}})
        with RawClient(process.port, b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Slow: ") as client:
            answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"\r\nx-gateway-error: client_timeout\r\n" in answer
        assert not backend.connections
        assert process.counters()["header_timeout"] == 1

    @pytest.mark.parametrize(
        ("limits", "lines"),
        [({"max_head_size": 1024}, ["X: " + "y" * 2000]), ({"max_fields": 8}, ["X: y"] * 9)],
    )
    def test_a_head_that_is_too_large(
        self, gateway: StartGateway, raw: StartRaw, limits: dict[str, int], lines: list[str]
    ) -> None:
        backend = raw(echo)
        process = gateway([backend], cluster=HTTP1, config={"http1": limits})
        with RawClient(process.port, get("/", *lines)) as client:
            assert client.rest().startswith(b"HTTP/1.1 431 ")
        assert not backend.connections


class TestBodies:
    @pytest.mark.parametrize("size", [0, 1, 1000, 3_000_000])
    def test_a_body_with_a_length(self, gateway: StartGateway, raw: StartRaw, size: int) -> None:
        process = gateway([raw(echo)], cluster=HTTP1)
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        asked = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % size
        with RawClient(process.port) as client:
            sender = threading.Thread(target=client.send, args=(asked + body,))
            sender.start()
            answer = client.response()[2]
            sender.join()
        head, _, echoed = answer.partition(b"\r\n\r\n")
        assert b"\r\ncontent-length: %d\r\n" % size in head + b"\r\n"
        assert echoed == body

    def test_chunks_both_ways_with_trailers(self, gateway: StartGateway, raw: StartRaw) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.until(b"\r\n\r\n")
            connection.send(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
                b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n"
            )
            connection.until_closed()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        asked = (
            b"POST / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n4\r\nwxyz\r\n0\r\nX-Check: 1\r\n\r\n"
        )
        with RawClient(process.port, asked) as client:
            answer = client.until(b"x-sum: 5\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert b"".join(re.findall(rb"[0-9]+\r\n([a-z]+)\r\n", body)) == b"abcde"
        assert backend.received.endswith(b"4\r\nwxyz\r\n0\r\nx-check: 1\r\n\r\n")

    def test_trailers_only_for_who_takes_them(self, gateway: StartGateway, raw: StartRaw) -> None:
        def script(connection: RawConnection) -> None:
            while True:
                connection.head()
                connection.send(
                    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                    b"1\r\na\r\n0\r\nx-t: 1\r\n\r\n"
                )

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port, get("/")) as client:
            assert client.until(b"0\r\n\r\n").endswith(b"1\r\na\r\n0\r\n\r\n")

    def test_expect_100_continue(self, gateway: StartGateway, raw: StartRaw) -> None:
        """The endpoint itself says whether it wants the body (RFC 9110 section 10.1.1)."""

        def script(connection: RawConnection) -> None:
            assert b"\r\nexpect: 100-continue\r\n" in connection.head()
            connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = connection.exactly(4)
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n" + body)
            connection.until_closed()

        process = gateway([raw(script)], cluster=HTTP1)
        asked = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        with RawClient(process.port, asked) as client:
            assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 Continue\r\n")
            client.send(b"body")
            assert client.response()[2] == b"body"

    def test_a_refusal_before_the_body(self, gateway: StartGateway, raw: StartRaw) -> None:
        """A final response to a request whose body never comes ends the connection."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n")
            connection.until_closed()

        process = gateway([raw(script)], cluster=HTTP1)
        asked = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        with RawClient(process.port, asked) as client:
            answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 417 ")
        assert b"\r\nconnection: close\r\n" in answer

    def test_a_final_answer_in_place_of_100_ends_the_connection(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        """Whether the body still comes is unknown: what does must not be taken for a request."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            connection.until_closed()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        asked = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n"
        with RawClient(process.port, asked) as client:
            _, head, _ = client.response()
            assert b"\r\nconnection: close\r\n" in head
            client.send(get("/smuggled"))
            assert client.rest() == b""
        assert b"smuggled" not in backend.received

    def test_a_body_that_ends_with_the_connection(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port, get("/")) as client:
            assert client.response()[2] == b"until the end"
            client.send(get("/again"))
            assert client.response()[2] == b"until the end"

    @pytest.mark.parametrize(
        "cut",
        [
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        ],
    )
    def test_a_response_that_is_cut_off_is_never_made_whole(
        self, gateway: StartGateway, raw: StartRaw, cut: bytes
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(cut)

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port, get("/")) as client:
            answer = b""
            try:
                answer = client.rest()
            except ConnectionResetError:
                answer = client.received
        assert answer.endswith((b"half", b"half\r\n"))

    def test_a_response_cut_off_for_http10_is_a_reset(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        """Where only the end of the connection ends a body, an orderly end would be a lie."""
        go = threading.Event()

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")
            go.wait(20)

        process = gateway([raw(script)], cluster=HTTP1)
        with RawClient(process.port, b"GET / HTTP/1.0\r\n\r\n") as client:
            client.until(b"half")
            go.set()
            with pytest.raises(ConnectionResetError):
                client.rest()


class TestEndpoints:
    def test_one_request_at_a_time_on_a_connection(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        both = threading.Barrier(2)

        def script(connection: RawConnection) -> None:
            connection.head()
            both.wait(20)
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            connection.until_closed()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        with RawClient(process.port, get("/")) as one, RawClient(process.port, get("/")) as other:
            assert one.response()[0] == 200
            assert other.response()[0] == 200
        assert len(backend.connections) == 2

    def test_max_connections_and_the_queue(self, gateway: StartGateway, raw: StartRaw) -> None:
        backend = raw(echo)
        process = gateway([backend], cluster={**HTTP1, "max_connections": 2})
        clients = [RawClient(process.port, get(f"/{i}")) for i in range(20)]
        for client in clients:
            assert client.response()[0] == 200
            client.close()
        assert len(backend.connections) <= 2

    def test_a_connection_that_died_idle_costs_no_request(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        """The endpoint closes while a request is on its way: a GET is simply sent again."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % connection.number)
            # The next request is read, so it was sent, and not answered.
            connection.head()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        with RawClient(process.port) as client:
            for number in range(5):
                client.send(get("/"))
                assert client.response()[2] == b"%d" % number
        assert process.counters()["retried"] == 4

    def test_a_request_that_may_have_done_something_is_not_sent_twice(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.request()
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            connection.request()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
        with RawClient(process.port) as client:
            client.send(post)
            assert client.response()[0] == 200
            client.send(post)
            status, head, _ = client.response()
        assert status == 502
        assert b"\r\nx-gateway-error: upstream_closed\r\n" in head
        assert backend.received.count(b"POST / ") == 2

    def test_octets_behind_a_response_reach_nobody(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        """Were they kept, the next client would take them for its answer."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
            )
            connection.until_closed()

        backend = raw(script)
        process = gateway([backend], cluster={**HTTP1, "max_connections": 1})
        with RawClient(process.port, get("/1") + get("/2") + get("/3")) as client:
            for _ in range(3):
                assert client.response()[2] == b"ok"
        assert len(backend.connections) == 3

    def test_octets_behind_a_response_reach_nobody_who_waits(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        """A request that waits for the connection gets another one."""
        go = threading.Event()

        def script(connection: RawConnection) -> None:
            connection.head()
            if connection.number == 0:
                go.wait(20)
                connection.send(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                    b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
                )
            else:
                connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood")
            connection.until_closed()

        process = gateway([raw(script)], cluster={**HTTP1, "max_connections": 1})
        with RawClient(process.port, get("/1")) as one:
            process.wait_for_counter("requests", 1)
            with RawClient(process.port, get("/2")) as other:
                process.wait_for_counter("pending", 1)
                go.set()
                assert one.response()[2] == b"ok"
                assert other.response()[2] == b"good"

    def test_the_protocol_of_an_endpoint_is_learned(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        def script(connection: RawConnection) -> None:
            head = connection.head()
            if head.startswith(b"PRI * HTTP/2.0"):
                connection.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                return
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            echo(connection)

        backend = raw(script)
        process = gateway([backend], cluster={"idle_timeout": "400ms"})
        with RawClient(process.port) as client:
            for _ in range(3):
                client.send(get("/"))
                assert client.response()[0] == 200
        assert len(backend.connections) == 2

    def test_a_client_that_goes_away_closes_the_connection_upstream(
        self, gateway: StartGateway, raw: StartRaw
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
            )
            connection.until_closed()

        backend = raw(script)
        process = gateway([backend], cluster=HTTP1)
        with RawClient(process.port, get("/")) as client:
            client.until(b"data: 1\n\n")
        assert backend.connection(0).ended.wait(20)
        process.wait_for_counter("cancelled_by_client", 1)

    def test_draining_in_place_of_an_abort(self, gateway: StartGateway, raw: StartRaw) -> None:
        go = threading.Event()
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 2000004\r\n\r\nhead"

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(head)
            go.wait(20)
            connection.send(b"x" * 2_000_000)
            echo(connection)

        backend = raw(script)
        process = gateway([backend], cluster={**HTTP1, "on_cancel": "drain"})
        with RawClient(process.port, get("/")) as client:
            client.until(b"head")
        process.wait_for_counter("responses_drained", 1)
        go.set()
        process.wait_for_counter("upstream_bytes_in", len(head) + 2_000_000)
        with RawClient(process.port, get("/next")) as client:
            assert client.response()[2].startswith(b"GET /next ")
        assert len(backend.connections) == 1

    def test_draining_has_a_limit(self, gateway: StartGateway, raw: StartRaw) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhead\r\n")
            while True:
                connection.send(b"400\r\n" + b"x" * 1024 + b"\r\n")

        backend = raw(script)
        process = gateway(
            [backend], cluster={**HTTP1, "on_cancel": "drain", "drain_limit": "100KiB"}
        )
        with RawClient(process.port, get("/")) as client:
            client.until(b"head")
        assert backend.connection(0).ended.wait(20)
