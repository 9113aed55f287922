"""Compression as clients know it that were not made for it: curl, grpcio, and HTTP/1.0."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import zlib

import grpc
import pytest

from gateway.demo.plain import Http2Server, Message, response
from gateway.demo.tokens_pb2 import Completion, Prompt

from .conftest import FindTool, OpenChannel, StartBackend, StartGateway, Stopping
from .processes import WAIT_S
from .raw import RawBackend, RawClient, RawConnection

HTTP1 = {"protocol": "http1", "idle_timeout": "500ms"}
ANSWER = json.dumps(list(range(20_000))).encode()
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n"
COMPLETE = "/gateway.demo.v1.Tokens/Complete"
GENERATE = "/gateway.demo.v1.Tokens/Generate"


def answering(connection: RawConnection) -> None:
    """The same JSON to each request."""
    while True:
        connection.head()
        connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (len(ANSWER), ANSWER)
        )


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("upstream", ["http1", "h2"])
def test_curl(
    gateway: StartGateway, stopping: Stopping, tool: FindTool, version: str, upstream: str
) -> None:
    """All four pairings; curl says how much came and writes what it was."""
    if upstream == "http1":
        process = gateway(
            [stopping(RawBackend(answering))], cluster=HTTP1, route={"compression": {}}
        )
    else:

        def answer(_: Message) -> Message:
            return response(200, ANSWER, [("content-type", "application/json")])

        process = gateway([stopping(Http2Server(answer))], route={"compression": {}})
    sizes = []
    for more in (("--compressed",), ()):
        command = (tool("curl"), "-sS", "--max-time", "20", version, *more)
        show = ("-w", "%{stderr}%{size_download}", f"http://{process.address}/")
        done = subprocess.run((*command, *show), capture_output=True, check=True)
        assert done.stdout == ANSWER
        sizes.append(int(done.stderr))
    assert sizes[0] < sizes[1] // 2
    assert sizes[1] == len(ANSWER)


def test_an_http10_client_knows_the_end_by_the_connection(
    gateway: StartGateway, stopping: Stopping
) -> None:
    process = gateway([stopping(RawBackend(answering))], cluster=HTTP1, route={"compression": {}})
    with RawClient(process.port, GET.replace(b"1.1", b"1.0")) as client:
        head, _, body = client.rest().partition(b"\r\n\r\n")
    assert b"\r\ncontent-encoding: gzip" in head
    assert b"content-length" not in head
    assert b"transfer-encoding" not in head
    assert gzip.decompress(body) == ANSWER


@pytest.mark.parametrize(
    ("kind", "compressed"), [(b"text/event-stream", False), (b"text/plain", True)]
)
def test_each_piece_comes_before_the_next_is_made(
    gateway: StartGateway, stopping: Stopping, kind: bytes, compressed: bool
) -> None:
    """The backend makes a piece only when the client has the one before."""
    has_it = threading.Semaphore(0)

    def script(connection: RawConnection) -> None:
        connection.head()
        connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % kind
        )
        for number in range(5):
            connection.send(b"9\r\ndata: %d\n\n\r\n" % number)
            assert has_it.acquire(timeout=WAIT_S)
        connection.send(b"0\r\n\r\n")
        connection.until_closed()

    process = gateway([stopping(RawBackend(script))], cluster=HTTP1, route={"compression": {}})
    with RawClient(process.port, GET) as client:
        head = client.until(b"\r\n\r\n")
        assert (b"\r\ncontent-encoding: gzip\r\n" in head) is compressed
        chunks = client.chunks()
        reading = zlib.decompressobj(31)
        for number in range(5):
            event = b"data: %d\n\n" % number
            got = b""
            while got != event:
                chunk = next(chunks)
                got += reading.decompress(chunk) if compressed else chunk
            has_it.release()
        for chunk in chunks:
            assert compressed
            reading.decompress(chunk)
        assert reading.eof is compressed


def test_grpcio_reads_what_was_sent(
    gateway: StartGateway, backend: StartBackend, channel: OpenChannel
) -> None:
    """The same octets with and without, small and large, unary and streamed."""
    upstream = backend("one")
    took = []
    answers = []
    for on in (False, True):
        compression = {"grpc": on, "max_message": "4MiB"}
        process = gateway([upstream], route={"compression": compression})
        connection = channel(process)
        complete = connection.unary_unary(
            COMPLETE,
            request_serializer=Prompt.SerializeToString,
            response_deserializer=Completion.FromString,
        )
        generate = connection.unary_stream(
            GENERATE,
            request_serializer=Prompt.SerializeToString,
            response_deserializer=lambda octets: octets,
        )
        streams = [
            [bytes(octets)[:8] + b"%d" % len(octets) for octets in call]
            for call in (
                generate(Prompt(tokens=4, payload_bytes=size), timeout=20)
                for size in (0, 1000, 70_000, 3_000_000)
            )
        ]
        # Octets are counted after they were written: with the next answer they surely are.
        small = complete(Prompt(tokens=3), timeout=20)
        answers.append((small.tokens, small.text, streams))
        counters = process.counters()
        took.append(counters["downstream_bytes_out"] / counters["upstream_bytes_in"])
    assert answers[0] == answers[1]
    assert took[0] > 0.9
    assert took[1] < 0.1


def test_a_client_that_takes_no_gzip_gets_none(
    gateway: StartGateway, backend: StartBackend, channel: OpenChannel
) -> None:
    process = gateway(
        [backend("one")], route={"compression": {"grpc": True, "max_message": "4MiB"}}
    )
    # A bit for each algorithm: identity alone.
    connection = channel(process, compression_enabled_algorithms_bitset=1)
    call = connection.unary_stream(
        GENERATE,
        request_serializer=Prompt.SerializeToString,
        response_deserializer=lambda octets: len(octets),
    )
    assert all(size > 50_000 for size in call(Prompt(tokens=4, payload_bytes=50_000), timeout=20))
    assert len(list(call(Prompt(tokens=1), timeout=20))) == 1  # now all before it is counted
    assert process.counters()["downstream_bytes_out"] > 200_000


def test_a_failing_call_has_its_status(
    gateway: StartGateway, backend: StartBackend, channel: OpenChannel
) -> None:
    process = gateway([backend("one")], route={"compression": {"grpc": True, "min_size": "0B"}})
    call = channel(process).unary_unary("/gateway.demo.v1.Tokens/Nothing")
    with pytest.raises(grpc.RpcError) as raised:
        call(b"", timeout=20)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
