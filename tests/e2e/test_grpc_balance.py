"""Which backend serves, with two workers; and how the gateway ends."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from gateway.demo.plain import Http2Client
from gateway.demo.tokens_pb2 import Prompt

from . import peers
from .conftest import OpenStub, StartBackend, StartGateway, Stopping
from .processes import WAIT_S

FOREVER = Prompt(tokens=1_000_000, interval_ms=20)
GRPC_REQUEST = [("content-type", "application/grpc"), ("te", "trailers")]


class OpenStreams:
    """Streams held open, each on a connection of its own, so that both workers get some."""

    def __init__(self, stack: ExitStack, host: str, port: int) -> None:
        self._stack = stack
        self._host, self._port = host, port
        self.clients: list[tuple[str, Http2Client]] = []

    @property
    def count(self) -> Counter[str]:
        """Open streams by backend."""
        return Counter(name for name, _ in self.clients)

    def open(self) -> str:
        """Open one more; the name of the backend that took it."""
        client = self._stack.enter_context(Http2Client(self._host, self._port))
        stream_id = client.send(
            "POST",
            "/gateway.demo.v1.Tokens/Generate",
            GRPC_REQUEST,
            peers.grpc_message(Prompt(tokens=1, sleep_ms=3_600_000)),
        )
        name = dict(client.receive_head(stream_id))["x-backend"]
        self.clients.append((name, client))
        return name

    def close(self, index: int) -> str:
        """End one; the name of its backend."""
        name, client = self.clients.pop(index)
        client.sock.close()
        return name


class TestLeastConnections:
    def test_is_exact_across_two_workers(
        self, gateway: StartGateway, backend: StartBackend
    ) -> None:
        """After every pair of dispatches both backends have the same number of streams.

        Workers that counted only their own streams would get this right with a chance of one in
        two for each pair.
        """
        process = gateway(
            [backend("a"), backend("b")], workers=2, cluster={"policy": "least_connections"}
        )
        with ExitStack() as stack:
            streams = OpenStreams(stack, process.host, process.port)
            for pair in range(1, 21):
                streams.open()
                streams.open()
                assert streams.count == {"a": pair, "b": pair}

    def test_counts_streams_that_end(self, gateway: StartGateway, backend: StartBackend) -> None:
        """Freed room is filled first, whichever worker freed it."""
        servers = [backend("a"), backend("b"), backend("c")]
        process = gateway(servers, workers=2, cluster={"policy": "least_connections"})
        with ExitStack() as stack:
            streams = OpenStreams(stack, process.host, process.port)
            for _ in range(15):
                streams.open()
            assert streams.count == {"a": 5, "b": 5, "c": 5}
            calls = [servers[1].next_call() for _ in range(5)]
            for index in reversed(range(15)):
                if streams.clients[index][0] == "b":
                    streams.close(index)
            for call in calls:
                assert call.ended.wait(WAIT_S)
            assert [streams.open() for _ in range(5)] == ["b"] * 5

    def test_weights(self, gateway: StartGateway, backend: StartBackend) -> None:
        heavy, light = backend("heavy"), backend("light")
        endpoints = [
            {"address": heavy.address, "weight": 300},
            {"address": light.address, "weight": 100},
        ]
        process = gateway([], workers=2, cluster={"endpoints": endpoints})
        with ExitStack() as stack:
            streams = OpenStreams(stack, process.host, process.port)
            for _ in range(16):
                streams.open()
            assert streams.count == {"heavy": 12, "light": 4}


class TestRingHash:
    def test_sessions_stick_across_two_workers(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        """A session has one backend whatever connection, worker and kind of call it comes by."""
        process = gateway(
            [backend(name) for name in "abc"],
            workers=2,
            cluster={"policy": "ring_hash", "hash_on": "metadata:x-session-id"},
        )
        served: dict[int, set[str]] = {session: set() for session in range(40)}
        for _ in range(6):
            calls = stub(process)
            for session, names in served.items():
                metadata = [("x-session-id", f"session-{session}")]
                names.add(calls.Complete(Prompt(), metadata=metadata, timeout=WAIT_S).backend)
                stream = calls.Generate(Prompt(tokens=1), metadata=metadata, timeout=WAIT_S)
                names.update(token.backend for token in stream)
        assert all(len(names) == 1 for names in served.values())
        assert set().union(*served.values()) == {"a", "b", "c"}

    def test_refused_sessions_move_together_and_come_from_one_backend_only(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, stopping: Stopping
    ) -> None:
        """With one of three down, its sessions stick to others and theirs stay where they were."""
        servers: list[Any] = [backend(name) for name in "abc"]
        cluster = {"policy": "ring_hash", "hash_on": "metadata:x-session-id"}

        def served(calls: Any) -> dict[int, str]:
            return {
                session: calls.Complete(
                    Prompt(), metadata=[("x-session-id", f"session-{session}")], timeout=WAIT_S
                ).backend
                for session in range(60)
            }

        calls = stub(gateway(servers, workers=2, cluster=cluster))
        before = served(calls)
        servers[2].stop()
        after = served(calls)
        assert served(calls) == after
        assert {session for session in before if before[session] != after[session]} == {
            session for session, name in before.items() if name == "c"
        }
        moved = {after[session] for session, name in before.items() if name == "c"}
        assert moved == {"a", "b"}


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_drains(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub, number: int
    ) -> None:
        """Streams are finished whole, then the exit code is 0; nothing new is taken meanwhile."""
        process = gateway([backend("a")], workers=2)
        channels = [stub(process) for _ in range(4)]
        prompt = Prompt(tokens=100, interval_ms=25, payload_bytes=1000)
        streams = [calls.Generate(prompt, timeout=WAIT_S) for calls in channels]
        for stream in streams:
            next(stream)
        process.signal(number)
        for stream in streams:
            assert len(list(stream)) == 99
            assert stream.code() is grpc.StatusCode.OK
        assert process.wait() == 0
        with pytest.raises(grpc.RpcError) as caught:
            stub(process).Complete(Prompt(), timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    def test_drain_timeout_ends_what_does_not_end(
        self, gateway: StartGateway, backend: StartBackend, stub: OpenStub
    ) -> None:
        server = backend("a")
        process = gateway([server], workers=2, gateway={"drain_timeout": "300ms"})
        stream = stub(process).Generate(FOREVER, timeout=WAIT_S)
        next(stream)
        process.signal()
        with pytest.raises(grpc.RpcError) as caught:
            for _ in stream:
                pass
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(error.trailing_metadata() or ()).get("x-gateway-error") == "draining"
        assert process.wait() == 0
        assert server.next_call().ended.wait(WAIT_S)

    def test_goaway_is_sent_before_the_last_stream_ends(
        self, gateway: StartGateway, backend: StartBackend
    ) -> None:
        """A client learns at once that it has to open a new connection."""
        process = gateway([backend("a")])
        with Http2Client(process.host, process.port) as client:
            stream_id = client.send(
                "POST",
                "/gateway.demo.v1.Tokens/Generate",
                GRPC_REQUEST,
                peers.grpc_message(Prompt(tokens=2, interval_ms=500)),
            )
            client.receive_head(stream_id)
            process.signal()
            response = client.receive(stream_id)
            assert response.get("grpc-status") == "0"
            assert client.goaways
            assert client.goaways[-1] == (stream_id, 0)
        assert process.wait() == 0
