"""The official OpenAI client before an ASGI server on uvicorn, the gateway in between."""

from __future__ import annotations

import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from .conftest import StartGateway, Stopping
from .processes import GatewayProcess, ServerProcess, free_port

SERVER = Path(__file__).parent / "servers" / "openai_api.py"
CLUSTER = {"idle_timeout": "500ms"}

# The client's types tell a stream from a completion by literals only.
Connect = Callable[[GatewayProcess], Any]


@pytest.fixture
def server(stopping: Stopping) -> ServerProcess:
    port = free_port()
    return stopping(ServerProcess((sys.executable, str(SERVER), str(port)), port))


@pytest.fixture
def connect(gateway: StartGateway) -> Iterator[Connect]:
    """A client; it is closed before the gateway is looked at."""
    clients: list[openai.OpenAI] = []

    def connect(process: GatewayProcess) -> openai.OpenAI:
        client = openai.OpenAI(
            api_key="none", base_url=f"http://{process.address}/v1", max_retries=0, timeout=20.0
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


def ask(text: str) -> Any:
    return [{"role": "user", "content": text}]


def step(server: ServerProcess) -> None:
    """Let the server send one more word."""
    request = urllib.request.Request(f"http://{server.address}/control/go", method="POST")
    with urllib.request.urlopen(request, timeout=20):
        pass


def test_models_and_completion(
    gateway: StartGateway, server: ServerProcess, connect: Connect
) -> None:
    client = connect(gateway([server], cluster=CLUSTER))
    assert [model.id for model in client.models.list()] == ["echo"]
    done = client.chat.completions.create(model="echo", messages=ask("one two three"))
    assert done.choices[0].message.content == "one two three"
    assert done.usage is not None
    assert done.usage.completion_tokens == 3


def test_a_stream_comes_word_by_word(
    gateway: StartGateway, server: ServerProcess, connect: Connect
) -> None:
    """Each word is here before the server was told to send the next one."""
    client = connect(gateway([server], cluster=CLUSTER))
    words = [f"w{i}" for i in range(20)]
    stream = client.chat.completions.create(
        model="echo", messages=ask(" ".join(words)), stream=True, user="stepwise"
    )
    got = []
    for event in stream:
        if event.choices[0].delta.content:
            got.append(event.choices[0].delta.content.strip())
            if len(got) < len(words):
                step(server)
    assert got == words


def test_a_cancelled_stream_reaches_the_server(
    gateway: StartGateway, server: ServerProcess, connect: Connect
) -> None:
    process = gateway([server], cluster=CLUSTER)
    client = connect(process)
    stream = client.chat.completions.create(
        model="echo", messages=ask("one two three"), stream=True, user="stepwise"
    )
    assert next(iter(stream)).choices[0].delta.content == "one "
    stream.close()
    server.lines.wait_for(lambda line: line == "disconnected")
    process.wait_for_counter("cancelled_by_client", 1)


def test_streams_side_by_side(
    gateway: StartGateway, server: ServerProcess, connect: Connect
) -> None:
    client = connect(gateway([server], cluster=CLUSTER))
    text = " ".join(f"w{i}" for i in range(50))
    answers: list[str] = []

    def run() -> None:
        stream = client.chat.completions.create(model="echo", messages=ask(text), stream=True)
        answers.append("".join(event.choices[0].delta.content or "" for event in stream).strip())

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [text] * 20


def test_large_bodies(gateway: StartGateway, server: ServerProcess, connect: Connect) -> None:
    client = connect(gateway([server], cluster=CLUSTER))
    texts = ["x" * 100_000] * 20
    done = client.embeddings.create(model="echo", input=texts, encoding_format="float")
    assert [each.embedding[0] for each in done.data] == [100_000.0] * 20


def test_errors_of_the_server_and_of_the_gateway(
    gateway: StartGateway, server: ServerProcess, connect: Connect
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
        config = {
            "routes": [{"match": {"path": "/v1/models"}, "cluster": "dead"}],
            "clusters": {"dead": {"endpoints": [{"address": dead}]}},
        }
        client = connect(gateway([server], cluster=CLUSTER, config=config))
        with pytest.raises(openai.NotFoundError) as missing:
            client.files.list()
        assert "x-gateway-error" not in missing.value.response.headers
        with pytest.raises(openai.InternalServerError) as broken:
            client.models.list()
    assert broken.value.status_code == 502
    assert broken.value.response.headers["x-gateway-error"] == "connect_failed"
