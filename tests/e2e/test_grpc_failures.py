"""gRPC calls whose servers misbehave: what the client is told, and that nobody else notices."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from gateway.demo.plain import Http2Client, Http2Connection
from gateway.demo.tokens_pb2 import Prompt, Token

from . import peers
from .conftest import OpenStub, StartBackend, StartGateway, Stopping
from .processes import WAIT_S, BackendProcess

GENERATE = "/gateway.demo.v1.Tokens/Generate"
COMPLETE = "/gateway.demo.v1.Tokens/Complete"
GRPC_REQUEST = [("content-type", "application/grpc"), ("te", "trailers")]
FOREVER = Prompt(tokens=1_000_000, interval_ms=20)


def error_of(call: Any, *arguments: Any, **options: Any) -> Any:
    """The :exc:`grpc.RpcError` that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, timeout=WAIT_S, **options)
    return caught.value


def gateway_error(error: Any) -> str | None:
    """The ``x-gateway-error`` of a failed call; None if the gateway did not make the failure."""
    return dict(error.trailing_metadata() or ()).get("x-gateway-error")


class TestLostServers:
    def test_dies_mid_stream(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """A server process is killed under three streams: all are told, and the next call is not
        sent to a connection that is gone."""
        doomed = stopping(BackendProcess("doomed"))
        process = gateway([doomed])
        calls = stub(process)
        streams = [calls.Generate(FOREVER, timeout=WAIT_S) for _ in range(3)]
        for stream in streams:
            assert next(stream).backend == "doomed"
        doomed.kill()
        for stream in streams:
            with pytest.raises(grpc.RpcError) as caught:
                list(stream)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert gateway_error(caught.value) == "upstream_closed"
        assert gateway_error(error_of(calls.Complete, Prompt())) == "connect_failed"
        host, _, port = doomed.address.rpartition(":")
        stopping(BackendProcess("heir", "--host", host, "--port", port))
        # The next attempt may have to wait for the backoff, but it has as long as the call.
        answer = calls.Complete(Prompt(tokens=1), timeout=WAIT_S, wait_for_ready=True)
        assert answer.backend == "heir"

    @pytest.mark.parametrize("connection", [peers.DiesMidStream, peers.ClosesMidStream])
    def test_connection_ends_mid_stream(
        self,
        gateway: StartGateway,
        stub: OpenStub,
        stopping: Stopping,
        connection: type[Http2Connection],
    ) -> None:
        """What came before the end is delivered, then the status."""
        server = stopping(peers.ScriptedServer("dying", connection))
        stream = stub(gateway([server])).Generate(Prompt(), timeout=WAIT_S)
        got: list[Token] = []
        with pytest.raises(grpc.RpcError) as caught:
            got.extend(stream)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway_error(caught.value) == "upstream_closed"
        # A reset may overtake the bytes before it in the kernel, a FIN may not.
        if connection is peers.ClosesMidStream:
            assert [token.text for token in got] == ["last words"]

    def test_is_not_tried_again_once_it_may_have_been_processed(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        dying = stopping(peers.ScriptedServer("dying", peers.DiesMidStream))
        other = backend("other")
        calls = stub(gateway([dying, other], cluster={"policy": "round_robin"}))
        codes = []
        for _ in range(10):
            call = calls.Complete.with_call
            try:
                call(Prompt(tokens=1), timeout=WAIT_S)
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                codes.append(error.code())
        assert codes.count(grpc.StatusCode.UNAVAILABLE) == 5
        assert other.calls.qsize() == 5


class TestRefused:
    def test_is_unavailable(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        port = stopping(peers.RefusingPort())
        error = error_of(stub(gateway([port])).Complete, Prompt())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway_error(error) == "connect_failed"
        assert port.address in error.details()

    def test_another_endpoint_serves(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        port = stopping(peers.RefusingPort())
        calls = stub(gateway([port, backend("a")]))
        names = {calls.Complete(Prompt(), timeout=WAIT_S).backend for _ in range(20)}
        assert names == {"a"}

    def test_stream_refused_is_tried_elsewhere(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        refusing = stopping(peers.ScriptedServer("refusing", peers.RefusesStreams))
        calls = stub(gateway([refusing, backend("a")], cluster={"policy": "round_robin"}))
        names = [calls.Complete(Prompt(), timeout=WAIT_S).backend for _ in range(10)]
        assert names == ["a"] * 10
        assert refusing.events["refused"] > 0

    def test_stream_refused_everywhere(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        refusing = stopping(peers.ScriptedServer("refusing", peers.RefusesStreams))
        error = error_of(stub(gateway([refusing])).Complete, Prompt())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway_error(error) == "upstream_refused"

    @pytest.mark.parametrize("size", [0, 10_000])
    def test_second_try_gets_the_whole_request(
        self,
        gateway: StartGateway,
        backend: StartBackend,
        stub: OpenStub,
        stopping: Stopping,
        size: int,
    ) -> None:
        """The body that was sent with the refused request is sent again."""
        refusing = stopping(peers.ScriptedServer("refusing", peers.RefusesStreams))
        calls = stub(gateway([refusing, backend("a")], cluster={"policy": "round_robin"}))
        for _ in range(4):
            answer = calls.Complete(Prompt(payload=bytes(size)), timeout=WAIT_S)
            assert (answer.backend, answer.request_bytes) == ("a", size)

    def test_second_try_gets_what_is_left_of_the_deadline(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """A request held for a while and then refused has less time at the next server."""
        holding = stopping(peers.ScriptedServer("holding", peers.RefusesOnRelease))
        other = stopping(peers.ScriptedServer("other"))
        calls = stub(gateway([holding, other], cluster={"policy": "round_robin"}))
        futures = [calls.Complete.future(Prompt(), timeout=10.0) for _ in range(2)]
        holding.wait("request")
        threading.Event().wait(0.5)  # what is tested is that time passes
        for connection in holding.connections:
            assert isinstance(connection, peers.RefusesOnRelease)
            connection.release()
        assert [future.result(WAIT_S).backend for future in futures] == ["other"] * 2
        timeouts = [_seconds(request.get("grpc-timeout")) for request in other.seen]
        # grpcio rounds a timeout up by about one in a hundred.
        # What a deadline loses by being written down is less than a hundredth of a second.
        assert 0 < min(timeouts) <= max(timeouts) - 0.39


def _seconds(timeout: str | None) -> float:
    assert timeout is not None
    units = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
    return int(timeout[:-1]) * units[timeout[-1]]


class TestResets:
    @pytest.mark.parametrize(
        ("connection", "code"),
        [
            (peers.ResetsInternal, grpc.StatusCode.INTERNAL),
            (peers.ResetsCancel, grpc.StatusCode.CANCELLED),
            (peers.ResetsCalm, grpc.StatusCode.RESOURCE_EXHAUSTED),
            (peers.ResetsSecurity, grpc.StatusCode.PERMISSION_DENIED),
        ],
    )
    def test_code_becomes_a_status(
        self,
        gateway: StartGateway,
        stub: OpenStub,
        stopping: Stopping,
        connection: type[Http2Connection],
        code: grpc.StatusCode,
    ) -> None:
        """The table of gRPC's HTTP/2 mapping; and it is not tried again."""
        server = stopping(peers.ScriptedServer("resetting", connection))
        error = error_of(stub(gateway([server])).Complete, Prompt())
        assert error.code() is code
        assert gateway_error(error) == "upstream_reset"
        assert server.events["refused"] == 1

    def test_a_response_against_the_rules(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        server = stopping(peers.ScriptedServer("bad", peers.BadResponse))
        error = error_of(stub(gateway([server])).Complete, Prompt())
        assert error.code() is grpc.StatusCode.INTERNAL
        assert gateway_error(error) == "upstream_protocol"

    def test_early_answer_with_no_error(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """RFC 9113 section 8.1: the response stands, the rest of the request is not wanted."""
        server = stopping(peers.ScriptedServer("early", peers.AnswersEarly))
        calls = stub(gateway([server]))
        for _ in range(5):
            answer = calls.Complete(Prompt(payload=bytes(1 << 20)), timeout=WAIT_S)
            assert answer.backend == "early"


class TestGoaway:
    def test_unprocessed_streams_succeed_on_another_connection(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        server = stopping(peers.ScriptedServer("going", peers.GoesAway))
        calls = stub(gateway([server]))
        futures = [calls.Complete.future(Prompt(), timeout=WAIT_S) for _ in range(3)]
        assert [future.result(WAIT_S).backend for future in futures] == ["going"] * 3
        assert len(server.seen) == 3
        assert len(server.connections) == 2

    def test_graceful_in_two_steps(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """The streams of a connection that goes are finished there, new ones start elsewhere."""
        server = stopping(peers.ScriptedServer("going", peers.GoesAwayInTwoSteps))
        calls = stub(gateway([server]))
        futures = [calls.Complete.future(Prompt(), timeout=WAIT_S) for _ in range(2)]
        assert [future.result(WAIT_S).backend for future in futures] == ["going"] * 2
        assert len(server.connections) == 1
        assert calls.Complete(Prompt(), timeout=WAIT_S).backend == "going"
        assert len(server.connections) == 2

    def test_grpcio_server_shuts_down_gracefully(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """Its stream ends as it should, and no call of the time after is lost."""
        leaving, staying = backend("leaving"), backend("staying")
        calls = stub(gateway([leaving, staying], cluster={"policy": "round_robin"}))
        streams = [
            calls.Generate(Prompt(tokens=40, interval_ms=20), timeout=WAIT_S) for _ in range(2)
        ]
        names = {next(stream).backend for stream in streams}
        assert names == {"leaving", "staying"}
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(leaving.stop, WAIT_S)
            while not stopped.done():
                call = calls.Complete.future(Prompt(), timeout=WAIT_S)
                if call.exception(WAIT_S) is None:
                    assert call.result().backend in names
                    continue
                # What reaches grpcio just as it stops it takes, and answers CANCELLED itself.
                assert call.code() is grpc.StatusCode.CANCELLED
                assert "x-gateway-error" not in dict(call.trailing_metadata())
            assert [len(list(stream)) for stream in streams] == [39, 39]
        assert {calls.Complete(Prompt(), timeout=WAIT_S).backend for _ in range(4)} == {"staying"}


class TestLimits:
    def test_a_server_that_allows_one_stream_at_a_time(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """MAX_CONCURRENT_STREAMS is kept: more connections, and then a queue."""
        server = stopping(peers.ScriptedServer("narrow", peers.OneStreamOnly))
        process = gateway([server], cluster={"max_connections": 4})
        calls = stub(process)
        for _ in range(2):
            futures = [calls.Complete.future(Prompt(), timeout=WAIT_S) for _ in range(40)]
            assert {future.result(WAIT_S).backend for future in futures} == {"narrow"}
        assert len(server.connections) <= 4
        # Only a connection's first moment, before its SETTINGS came, may have gone above it.
        assert server.events["refused"] < 40
        assert not server.errors


class TestStalls:
    ROUTES = {  # noqa: RUF012
        "routes": [{"match": {"headers": {"x-to": "stuck"}}, "cluster": "stuck"}],
    }

    def beside(self, stuck: Any) -> dict[str, Any]:
        """A second cluster, for calls with metadata ``x-to: stuck``."""
        cluster = {
            "endpoints": [{"address": stuck.address}],
            "idle_timeout": "200ms",
            "connect_timeout": "4s",
        }
        return {**self.ROUTES, "clusters": {"stuck": cluster}}

    def test_a_server_that_never_reads(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        """Calls to it end with their deadline; calls of the same connection go on meanwhile."""
        stuck = stopping(peers.NeverReadingPort())
        calls = stub(gateway([backend("a")], config=self.beside(stuck)))
        metadata = [("x-to", "stuck")]
        future = calls.Complete.future(
            Prompt(payload=bytes(4 << 20)), metadata=metadata, timeout=3.0
        )
        assert stuck.accepted.wait(WAIT_S)
        for _ in range(50):
            assert calls.Complete(Prompt(payload=bytes(10_000)), timeout=WAIT_S).backend == "a"
        assert len(list(calls.Generate(Prompt(tokens=100), timeout=WAIT_S))) == 100
        assert not future.done()
        assert future.exception(WAIT_S).code() is grpc.StatusCode.DEADLINE_EXCEEDED

    def test_a_server_that_never_opens_its_window(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        """A large request stalls; others of the client's connection do not."""
        stuck = stopping(peers.ScriptedServer("stuck", peers.NeverOpensWindow))
        calls = stub(gateway([backend("a")], config=self.beside(stuck)))
        future = calls.Complete.future(
            Prompt(payload=bytes(4 << 20)), metadata=[("x-to", "stuck")], timeout=WAIT_S
        )
        stuck.wait("data")
        for _ in range(20):
            answer = calls.Complete(Prompt(payload=bytes(100_000)), timeout=WAIT_S)
            assert (answer.backend, answer.request_bytes) == ("a", 100_000)
        assert not future.done()
        future.cancel()
        stuck.wait("reset")

    def test_stall_timeout(self, gateway: StartGateway, stub: OpenStub, stopping: Stopping) -> None:
        """Nobody waits for ever for a window: the stall ends the call."""
        stuck = stopping(peers.ScriptedServer("stuck", peers.NeverOpensWindow))
        process = gateway([stuck], http2={"stall_timeout": "500ms"})
        error = error_of(stub(process).Complete, Prompt(payload=bytes(4 << 20)))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway_error(error) == "stalled"

    def test_a_client_that_never_reads(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """Its server is held back, and other clients of both are not."""
        server = backend("a")
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(
                "POST",
                GENERATE,
                GRPC_REQUEST,
                peers.grpc_message(Prompt(tokens=10_000, payload_bytes=100_000)),
            )
            call = server.next_call()
            calls = stub(process)
            for _ in range(20):
                answer = calls.Complete(Prompt(tokens=1, payload_bytes=100_000), timeout=WAIT_S)
                assert len(answer.payload) == 100_000
            assert not call.ended.is_set()  # a gigabyte would be through by now
        assert call.ended.wait(WAIT_S)
        assert not call.served

    def test_a_silent_stream_outlives_many_keepalive_intervals(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """grpcio servers end a connection that pings them too often (too_many_pings)."""
        process = gateway(
            [backend("a")], cluster={"keepalive_interval": "100ms", "keepalive_timeout": "1s"}
        )
        stream = stub(process).Generate(Prompt(tokens=2, sleep_ms=2500), timeout=WAIT_S)
        assert [token.backend for token in stream] == ["a", "a"]

    def test_keepalive_finds_a_server_that_is_stuck(
        self, gateway: StartGateway, stub: OpenStub, stopping: Stopping
    ) -> None:
        """No answer to a PING: the connection is lost, and its calls are told."""
        stuck = stopping(peers.ScriptedServer("stuck", peers.StopsReading))
        process = gateway(
            [stuck], cluster={"keepalive_interval": "100ms", "keepalive_timeout": "300ms"}
        )
        error = error_of(stub(process).Complete, Prompt())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway_error(error) == "upstream_closed"
