"""grpcio clients and servers through the gateway: what works without one works with one."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import pytest
from google.rpc.error_details_pb2 import DebugInfo
from grpc_status import rpc_status

from gateway.demo.backend import payload_of
from gateway.demo.plain import Http2Client
from gateway.demo.tokens_pb2 import Failure, Prompt, Token

from .conftest import OpenChannel, OpenStub, StartBackend, StartGateway
from .peers import grpc_message
from .processes import WAIT_S

MIB = 1 << 20
GRPC_REQUEST = [("content-type", "application/grpc"), ("te", "trailers")]


def tokens(count: int, size: int = 10) -> Iterator[Token]:
    return (Token(index=index, payload=payload_of(index, size)) for index in range(count))


def trailers_of(error: Any) -> dict[str, str | bytes]:
    """The trailing metadata of a call that failed."""
    return dict(error.trailing_metadata())


class TestKinds:
    """The four kinds of call."""

    def test_unary(self, gateway: StartGateway, backend: StartBackend, stub: OpenStub) -> None:
        calls = stub(gateway([backend("a")]))
        answer = calls.Complete(Prompt(tokens=3, payload=b"xyz"), timeout=WAIT_S)
        assert (answer.backend, answer.tokens, answer.text) == ("a", 3, "the quick brown")
        assert (answer.request_bytes, answer.request_crc) == (3, zlib.crc32(b"xyz"))

    def test_server_stream(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        prompt = Prompt(tokens=50, interval_ms=1, payload_bytes=100)
        got = list(calls.Generate(prompt, timeout=WAIT_S))
        assert [token.index for token in got] == list(range(50))
        assert all(token.payload == payload_of(token.index, 100) for token in got)

    def test_client_stream(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        summary = calls.Collect(tokens(50, 1000), timeout=WAIT_S)
        crc = 0
        for token in tokens(50, 1000):
            crc = zlib.crc32(token.payload, crc)
        assert (summary.tokens, summary.bytes, summary.crc) == (50, 50_000, crc)

    def test_bidi_in_lockstep(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """Each prompt waits for the answer to the one before: nothing is held back."""
        calls = stub(gateway([backend("a")]))
        answered = threading.Semaphore(1)

        def prompts() -> Iterator[Prompt]:
            for number in range(20):
                assert answered.acquire(timeout=WAIT_S)
                yield Prompt(tokens=1, payload_bytes=number)

        sizes = []
        for token in calls.Chat(prompts(), timeout=WAIT_S):
            sizes.append(len(token.payload))
            answered.release()
        assert sizes == list(range(20))

    def test_a_stream_of_nothing(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        assert list(calls.Generate(Prompt(tokens=0), timeout=WAIT_S)) == []
        assert calls.Collect(iter(()), timeout=WAIT_S).tokens == 0
        assert list(calls.Chat(iter(()), timeout=WAIT_S)) == []

    def test_unknown_method(
        self, gateway: StartGateway, backend: StartBackend, channel: OpenChannel
    ) -> None:
        call = channel(gateway([backend("a")])).unary_unary("/gateway.demo.v1.Tokens/Nothing")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


class TestMetadata:
    BINARY = bytes(range(256))

    def test_reaches_the_server(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        sent = [
            ("x-one", "1"),
            ("x-twice", "first"),
            ("x-twice", "second"),
            ("x-any-bin", self.BINARY),
            ("x-empty-bin", b""),
            ("x-list", "a,b, c"),
            ("x-long", "v" * 6000),
        ]
        stub(gateway([server])).Complete(Prompt(), metadata=sent, timeout=WAIT_S)
        call = server.next_call()
        assert call.values("x-twice") == ["first", "second"]
        assert [pair for pair in call.metadata if pair in sent] == sent
        # grpcio takes the user agent and the encodings for itself; they must have come unchanged.
        assert "grpc-python" in str(call.get("user-agent"))

    def test_comes_back_first_and_last(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        sent = [
            ("x-echo-initial", "hello"),
            ("x-echo-initial-bin", self.BINARY),
            ("x-echo-trailing", "bye"),
            ("x-echo-trailing-bin", self.BINARY[::-1]),
        ]
        stream = stub(gateway([backend("a")])).Generate(
            Prompt(tokens=2, interval_ms=1), metadata=sent, timeout=WAIT_S
        )
        initial = dict(stream.initial_metadata())
        assert initial["x-backend"] == "a"
        assert initial["x-echo-initial"] == "hello"
        assert initial["x-echo-initial-bin"] == self.BINARY
        assert len(list(stream)) == 2
        trailing = dict(stream.trailing_metadata())
        assert trailing["x-tokens"] == "2"
        assert trailing["x-echo-trailing"] == "bye"
        assert trailing["x-echo-trailing-bin"] == self.BINARY[::-1]

    def test_initial_metadata_does_not_wait_for_the_first_message(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        stream = stub(gateway([backend("a")])).Generate(
            Prompt(tokens=1, sleep_ms=3_600_000), timeout=WAIT_S
        )
        assert ("x-backend", "a") in tuple(stream.initial_metadata())
        stream.cancel()

    def test_is_forwarded(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        process = gateway([server])
        stub(process).Complete(Prompt(), timeout=WAIT_S)
        call = server.next_call()
        assert call.get("x-forwarded-for") == "127.0.0.1"
        assert call.get("x-forwarded-proto") == "http"
        assert call.get("x-request-id")
        assert call.get("via") == "2 gateway"


class TestErrors:
    def test_every_status(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        for code in range(1, 17):
            failure = Failure(code=code, message=f"100% schief gegangen: ü\n€ {code}")
            with pytest.raises(grpc.RpcError) as caught:
                calls.Complete(Prompt(failure=failure), timeout=WAIT_S)
            assert caught.value.code().value[0] == code
            assert caught.value.details() == failure.message
            assert trailers_of(caught.value)["x-backend"] == "a"

    @pytest.mark.parametrize("after_tokens", [0, 3])
    def test_details(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, after_tokens: int
    ) -> None:
        calls = stub(gateway([backend("a")]))
        failure = Failure(
            code=9, message="not now", details=["one", "two"], after_tokens=after_tokens
        )
        stream = calls.Generate(Prompt(tokens=10, failure=failure), timeout=WAIT_S)
        got: list[int] = []
        with pytest.raises(grpc.RpcError) as caught:
            got.extend(token.index for token in stream)
        assert got == list(range(after_tokens))
        status = rpc_status.from_call(cast(Any, caught.value))
        assert status is not None
        assert (status.code, status.message) == (9, "not now")
        info = DebugInfo()
        assert status.details[0].Unpack(info)
        assert list(info.stack_entries) == ["one", "two"]

    def test_no_route(
        self, gateway: StartGateway, backend: StartBackend, channel: OpenChannel
    ) -> None:
        process = gateway([backend("a")], route={"match": {"path_prefix": "/other."}})
        call = channel(process).unary_unary("/gateway.demo.v1.Tokens/Complete")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert trailers_of(caught.value)["x-gateway-error"] == "no_route"


class TestSizes:
    def test_4_mib_both_ways(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        payload = bytes(range(256)) * (4 * MIB // 256)
        answer = calls.Complete(
            Prompt(tokens=1, payload_bytes=4 * MIB, payload=payload), timeout=WAIT_S
        )
        assert (answer.request_bytes, answer.request_crc) == (len(payload), zlib.crc32(payload))
        assert answer.payload == payload_of(0, 4 * MIB)

    def test_streams_of_mebibytes_both_ways(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        calls = stub(gateway([backend("a")]))
        prompts = (
            Prompt(tokens=1, payload_bytes=MIB + number, payload=bytes(MIB)) for number in range(8)
        )
        sizes = [len(token.payload) for token in calls.Chat(prompts, timeout=WAIT_S)]
        assert sizes == [MIB + number for number in range(8)]

    def test_200_concurrent_streams(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """All open at the same time on one connection, and none mixed up with another."""
        servers = [backend("a"), backend("b")]
        calls = stub(gateway(servers))
        together = threading.Barrier(200)

        def prompts(number: int) -> Iterator[Prompt]:
            yield Prompt(tokens=1, payload_bytes=number)
            together.wait(WAIT_S)  # nobody ends before everybody has begun
            yield Prompt(tokens=9, payload_bytes=number, interval_ms=1)

        def chat(number: int) -> bool:
            got = list(calls.Chat(prompts(number), timeout=2 * WAIT_S))
            return [len(token.payload) for token in got] == [number] * 10

        with ThreadPoolExecutor(200) as pool:
            assert all(pool.map(chat, range(200)))
        assert servers[0].calls.qsize() == servers[1].calls.qsize() == 100


class TestDeadlines:
    def test_client_sees_it_and_the_server_is_cancelled(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        stream = stub(gateway([server])).Generate(Prompt(tokens=1, sleep_ms=3_600_000), timeout=0.5)
        call = server.next_call()
        assert call.remaining_s is not None
        assert 0 < call.remaining_s < 0.51  # grpcio rounds up to a millisecond
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert call.ended.wait(WAIT_S)
        assert not call.served

    def test_no_deadline_stays_none(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        stub(gateway([server])).Complete(Prompt())
        assert server.next_call().remaining_s is None

    def test_gateway_enforces_it_for_a_client_that_does_not(
        self, gateway: StartGateway, backend: StartBackend
    ) -> None:
        """A client that only sends grpc-timeout is told, and the server is cancelled."""
        server = backend("a")
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            response = client.request(
                "POST",
                "/gateway.demo.v1.Tokens/Generate",
                [*GRPC_REQUEST, ("grpc-timeout", "300m")],
                grpc_message(Prompt(tokens=1, sleep_ms=3_600_000)),
            )
        assert response.status == 200
        assert response.get("grpc-status") == "4"
        call = server.next_call()
        assert call.ended.wait(WAIT_S)
        assert not call.served

    def test_route_timeout(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        process = gateway([server], route={"timeout": "300ms"})
        stream = stub(process).Generate(Prompt(tokens=1, sleep_ms=3_600_000), timeout=WAIT_S)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert server.next_call().ended.wait(WAIT_S)

    def test_idle_timeout_counts_from_the_last_byte(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """Ten tokens take longer than the idle timeout; the silence after them does not pass."""
        process = gateway([backend("a")], route={"idle_timeout": "600ms"})
        calls = stub(process)
        assert len(list(calls.Generate(Prompt(tokens=10, interval_ms=100), timeout=WAIT_S))) == 10
        prompts = iter([Prompt(tokens=10, interval_ms=100), Prompt(tokens=1, sleep_ms=3_600_000)])
        got: list[Token] = []
        with pytest.raises(grpc.RpcError) as caught:
            got.extend(calls.Chat(prompts, timeout=WAIT_S))
        assert len(got) == 10
        assert trailers_of(caught.value)["x-gateway-error"] == "idle_timeout"


class TestCancellation:
    def test_is_seen_by_the_server_within_a_second(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        stream = stub(gateway([server])).Generate(Prompt(tokens=1000, interval_ms=50))
        call = server.next_call()
        assert next(stream).index == 0
        stream.cancel()
        assert call.ended.wait(1.0)
        assert not call.served

    def test_before_any_answer(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        future = stub(gateway([server])).Complete.future(Prompt(sleep_ms=3_600_000))
        call = server.next_call()
        future.cancel()
        assert call.ended.wait(1.0)
        assert not call.served

    def test_a_lost_client_cancels_all_its_streams(
        self, gateway: StartGateway, backend: StartBackend
    ) -> None:
        server = backend("a")
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            for _ in range(3):
                client.send(
                    "POST",
                    "/gateway.demo.v1.Tokens/Generate",
                    GRPC_REQUEST,
                    grpc_message(Prompt(tokens=1, sleep_ms=3_600_000)),
                )
            calls = [server.next_call() for _ in range(3)]
        for call in calls:
            assert call.ended.wait(1.0)
            assert not call.served

    def test_does_not_disturb_its_neighbours(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        calls = stub(gateway([server]))
        kept = calls.Generate(Prompt(tokens=30, interval_ms=20), timeout=WAIT_S)
        next(kept)
        for _ in range(10):
            lost = calls.Generate(Prompt(tokens=1000, interval_ms=5))
            next(lost)
            lost.cancel()
        assert len(list(kept)) == 29


class TestHalfClose:
    def test_client_first(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """The server goes on for long after the client has finished."""
        calls = stub(gateway([backend("a")]))
        got = list(calls.Chat(iter([Prompt(tokens=30, interval_ms=10)]), timeout=WAIT_S))
        assert len(got) == 30

    def test_server_first(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """The server ends with OK while the client could still send."""
        calls = stub(gateway([backend("a")]))
        over = threading.Event()

        def prompts() -> Iterator[Prompt]:
            yield Prompt(tokens=2)
            yield Prompt(tokens=3, last=True)
            over.wait(WAIT_S)

        stream = calls.Chat(prompts(), timeout=WAIT_S)
        assert len(list(stream)) == 5
        assert stream.code() is grpc.StatusCode.OK
        over.set()

    def test_server_first_while_the_client_sends(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """Messages for a call that is over are dropped; the connection serves the next one."""
        calls = stub(gateway([backend("a")]))
        for _ in range(5):
            prompts = (Prompt(tokens=1, last=True, payload=bytes(50_000)) for _ in range(100))
            stream = calls.Chat(prompts, timeout=WAIT_S)
            assert len(list(stream)) == 1
            assert stream.code() is grpc.StatusCode.OK
        assert calls.Complete(Prompt(tokens=1), timeout=WAIT_S).tokens == 1

    def test_client_last(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """The server has nothing to say until the client's half-close."""
        calls = stub(gateway([backend("a")]))
        begun = threading.Event()

        def slowly() -> Iterator[Token]:
            yield from tokens(5)
            begun.wait(0.3)
            yield from tokens(5)

        assert calls.Collect(slowly(), timeout=WAIT_S).tokens == 10
