"""gRPC-Web clients of npm in Node (connect-web, grpc-web), through the gateway to grpcio."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from gateway.demo import tokens_pb2

from .conftest import FindTool, StartBackend, StartGateway
from .processes import WAIT_S, GatewayProcess, Lines

NODE = Path(__file__).parent / "node"
LIBRARIES = ("connect", "google", "google-text")


@pytest.fixture(scope="module")
def descriptor() -> str:
    """The service, as the clients read it."""
    file = descriptor_pb2.FileDescriptorProto.FromString(tokens_pb2.DESCRIPTOR.serialized_pb)
    for message in file.message_type:
        for field in message.field:
            field.json_name = field.name
    return base64.b64encode(
        descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    ).decode()


class Client:
    """A client that runs; ``next`` is the next line that it writes."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        self._child = child
        self._lines = Lines(child.stdout)
        self._read = 0

    def next(self) -> dict[str, Any]:
        line = self._lines.wait_for(lambda _: True, self._read)
        self._read += 1
        found: dict[str, Any] = json.loads(line)
        return found

    def all(self) -> list[dict[str, Any]]:
        """All that is left, when the client has ended."""
        assert self._child.wait(WAIT_S) == 0
        return [json.loads(line) for line in self._lines.join()[self._read :]]

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        self._lines.join()


class Run:
    def __init__(self, node: str, descriptor: str) -> None:
        self._node = node
        self._descriptor = descriptor
        self.clients: list[Client] = []

    def __call__(
        self,
        library: str,
        process: GatewayProcess,
        call: str,
        *,
        timeout_ms: int | None = None,
        **prompt: Any,
    ) -> Client:
        env = {} if timeout_ms is None else {"TIMEOUT_MS": str(timeout_ms)}
        url = f"http://{process.address}"
        argv: Sequence[str] = (self._node, "client.mjs", library, url, self._descriptor, call)
        child = subprocess.Popen(
            [*argv, json.dumps(prompt)],
            cwd=NODE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env},
        )
        client = Client(child)
        self.clients.append(client)
        return client


@pytest.fixture
def run(tool: FindTool, descriptor: str, gateway: StartGateway) -> Iterator[Run]:
    node, npm = tool("node"), tool("npm")
    if not (NODE / "node_modules").exists():
        subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--silent"], cwd=NODE, check=True, timeout=120
        )
    run = Run(node, descriptor)
    yield run
    for client in run.clients:
        client.kill()


@pytest.mark.parametrize("library", LIBRARIES)
class TestCalls:
    def test_unary(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        client = run(library, gateway([backend("one")]), "Complete", text="a b", tokens=3)
        answer, end = client.all()
        assert answer["tokens"] == 3
        assert end["code"] == 0

    def test_messages_come_one_by_one(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        """The first ones are here while the call has hours to go; then the client cancels."""
        if library == "google":
            pytest.skip("grpc-web gives streams in the text form only")
        observed = backend("one")
        process = gateway([observed])
        client = run(library, process, "Cancel", tokens=10_000_000, intervalMs=1)
        assert [client.next().get("index", 0) for _ in range(3)] == [0, 1, 2]
        call = observed.next_call()
        assert call.ended.wait(WAIT_S)
        process.wait_for_counter("cancelled_by_client", 1)

    def test_a_whole_stream(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        client = run(library, gateway([backend("one")]), "Generate", tokens=200, payloadBytes=1000)
        *tokens, end = client.all()
        assert [token.get("index", 0) for token in tokens] == list(range(200))
        assert end["code"] == 0

    def test_an_error_after_messages(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        failure = {"code": 5, "message": "no such model: \N{SNOWMAN}", "afterTokens": 2}
        client = run(library, gateway([backend("one")]), "Generate", tokens=5, failure=failure)
        *tokens, end = client.all()
        assert len(tokens) == 2
        assert (end["code"], end["message"]) == (5, "no such model: \N{SNOWMAN}")

    def test_an_error_without_messages(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        failure = {"code": 7, "message": "not yours"}
        client = run(library, gateway([backend("one")]), "Complete", tokens=5, failure=failure)
        (end,) = client.all()
        assert (end["code"], end["message"]) == (7, "not yours")

    def test_an_error_of_the_gateway(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        """No endpoint takes connections: UNAVAILABLE, as a gRPC client would see it."""
        stopped = backend("gone")
        stopped.stop()
        client = run(library, gateway([stopped]), "Complete", tokens=1)
        (end,) = client.all()
        assert end["code"] == 14
        assert "cannot connect" in end["message"]

    def test_a_deadline(
        self, gateway: StartGateway, backend: StartBackend, run: Run, library: str
    ) -> None:
        process = gateway([backend("one")])
        client = run(library, process, "Complete", timeout_ms=300, tokens=1, sleepMs=3_600_000)
        (end,) = client.all()
        assert end["code"] == 4
        process.wait_until_idle()


def test_a_preflight(gateway: StartGateway, backend: StartBackend, tool: FindTool) -> None:
    cors = {"allow_origins": ["https://app.example.org"]}
    process = gateway([backend("one")], route={"cors": cors})
    url = f"http://{process.address}/gateway.demo.v1.Tokens/Complete"
    done = subprocess.run(
        (
            *(tool("curl"), "-si", "--max-time", "20", "-X", "OPTIONS", url),
            *("-H", "Origin: https://app.example.org"),
            *("-H", "Access-Control-Request-Method: POST"),
            *("-H", "Access-Control-Request-Headers: content-type,x-grpc-web"),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    head = done.stdout.lower()
    assert head.startswith("http/1.1 204 ")
    assert "access-control-allow-origin: https://app.example.org\n" in head
    assert "access-control-allow-headers: content-type,x-grpc-web\n" in head
    assert "post" in head


def test_a_route_may_leave_it_alone(gateway: StartGateway, backend: StartBackend, run: Run) -> None:
    """Without translation the gRPC server gets what it does not know."""
    process = gateway([backend("one")], route={"grpc_web": False})
    (end,) = run("connect", process, "Complete", tokens=1).all()
    assert end["code"] != 0
