"""Server-sent events: what is sent is found however it is cut, and what is missing is counted."""

from __future__ import annotations

import json
import os
import socket
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import backends
from benchmarks.process import ROOT, Child
from benchmarks.streams.events import SMALLEST, Broken, EventReader, EventSender, EventStream

SIZE = 64
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TIMEOUT_S = 20


@contextmanager
def reading(size: int = SIZE) -> Iterator[tuple[EventReader, socket.socket]]:
    """A client, and the end of its connection that the proxy would have."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reader = EventReader(listening.getsockname()[1], size)
        proxy, _ = listening.accept()
    with reader.sock, proxy:
        proxy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        proxy.recv(65_536)  # closing with unread data would be a reset
        reader.sock.settimeout(TIMEOUT_S)
        yield reader, proxy


def event(number: int, stamp: int, size: int = SIZE) -> bytes:
    return b"data: %016x%08x%s\n\n" % (stamp, number, b"t" * (size - SMALLEST))


def chunk(data: bytes) -> bytes:
    return b"%X\r\n%s\r\n" % (len(data), data)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


PLACES = st.lists(st.integers(0, 500), max_size=8)


@given(st.integers(1, 6), PLACES, PLACES, st.sampled_from([SMALLEST, SIZE]))
def test_events_are_found_however_chunks_and_reads_cut_them(
    count: int, chunks: list[int], reads: list[int], size: int
) -> None:
    body = b"".join(event(number, 1000 + number, size) for number in range(count))
    wire = HEAD + b"".join(chunk(piece) for piece in cut(body, chunks))
    with reading(size) as (reader, proxy):
        found = array("Q")
        for piece in cut(wire, reads):
            proxy.sendall(piece)
            # Each piece is read on its own, so that the reader sees the cut.
            reader.read(found)
        proxy.shutdown(socket.SHUT_WR)  # whoever waits for more is told
        while len(found) < count:
            reader.read(found)
        assert list(found) == [1000 + number for number in range(count)]
        assert reader.lost == 0
        assert not reader.waiting


def test_events_are_found_byte_by_byte() -> None:
    """No cut is left to chance: least of all those within the size of a chunk."""
    with reading() as (reader, proxy):
        found = array("Q")
        for byte in HEAD + chunk(event(0, 7)[:30]) + chunk(event(0, 7)[30:] + event(1, 8)):
            proxy.sendall(bytes((byte,)))
            reader.read(found)
        assert list(found) == [7, 8]


def test_one_event_in_one_chunk_is_read_at_once() -> None:
    with reading() as (reader, proxy):
        found = array("Q")
        proxy.sendall(HEAD)
        assert reader.read(found) == 0
        for number in range(3):
            proxy.sendall(b"%x\r\n%s\r\n" % (SIZE, event(number, number)))
            assert reader.read(found) == 1
        assert list(found) == [0, 1, 2]


def test_missing_events_are_counted() -> None:
    with reading() as (reader, proxy):
        found = array("Q")
        proxy.sendall(HEAD + chunk(event(0, 7)) + chunk(event(3, 8)) + chunk(event(5, 9)))
        while len(found) < 3:
            reader.read(found)
        assert reader.lost == 3


@pytest.mark.parametrize("number", [0, 1])
def test_an_event_that_was_there_before_is_an_error(number: int) -> None:
    with reading() as (reader, proxy):
        found = array("Q")
        proxy.sendall(HEAD + chunk(event(0, 7)) + chunk(event(1, 7)))
        while len(found) < 2:
            reader.read(found)
        proxy.sendall(chunk(event(number, 7)))
        with pytest.raises(Broken, match=f"event {number} came when 2 was next"):
            reader.read(found)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "closed a connection"),
        (HEAD + b"0\r\n\r\n", "a stream ended"),
        (HEAD + b"what\r\n", "not the size of a chunk"),
        (HEAD + chunk(b"t" * SIZE), "not an event"),
        (HEAD + chunk(event(0, 7)[:-2] + b"tt"), "not an event"),
        (HEAD + chunk(b"data: " + b"t" * (SIZE - 8) + b"\n\n"), "not an event"),
        (b"HTTP/1.1 503 no\r\nTransfer-Encoding: chunked\r\n\r\n", "not a stream of events"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n", "not a stream of events"),
    ],
)
def test_what_is_no_stream_of_events_is_an_error(sent: bytes, reason: str) -> None:
    with reading() as (reader, proxy):
        proxy.sendall(sent)
        proxy.shutdown(socket.SHUT_WR)
        with pytest.raises(Broken, match=reason):
            reader.read(array("Q"))


def test_only_an_event_that_is_new_enough_ends_the_wait() -> None:
    with reading() as (reader, proxy):
        proxy.sendall(HEAD + chunk(event(0, 100)))
        reader.read(array("Q"))
        assert not reader.waiting
        reader.expect(200)
        for number, (stamp, waits) in enumerate([(199, True), (200, False)], 1):
            proxy.sendall(chunk(event(number, stamp)))
            reader.read(array("Q"))
            assert bool(reader.waiting) == waits


def opened(sender: EventSender, request: bytes) -> EventStream:
    (stream,) = sender.receive(request)
    return stream


REQUEST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n{}\n"


def test_a_request_in_pieces_opens_one_stream() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = EventSender(ours, SIZE)
        head = REQUEST.index(b"{")
        found = [len(sender.receive(bytes((byte,)))) for byte in REQUEST]
        assert found == [*[0] * (head - 1), 1, *[0] * (len(REQUEST) - head)]


def test_what_the_socket_does_not_take_is_left_out_by_number() -> None:
    # Over TCP, which takes a part of what it has no room for.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(TIMEOUT_S)
        sender = EventSender(ours, SIZE)
        stream = opened(sender, REQUEST)
        sent = 0
        while sender.message(stream, 7):
            sender.flush()
            sent += 1
        assert sent > 0
        received = b""
        while sender.out:
            received += theirs.recv(65_536)
            sender.flush()
        assert sender.message(stream, 9)
        sender.flush()
        ours.shutdown(socket.SHUT_WR)
        while data := theirs.recv(65_536):
            received += data
    numbers = [(number, 7) for number in range(sent)]
    numbers.append((sent + 1, 9))
    body = b"".join(chunk(event(number, stamp)) for number, stamp in numbers)
    assert received.partition(b"\r\n\r\n")[2] == body


def test_client_and_server_together(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    plan = backends.StreamPlan(rate=200, size=SIZE, events=True)
    with backends.start_stream_backend(plan, tmp_path, cores) as server:
        port = backends.ports_of(server)[1]
        argv = (sys.executable, "-m", "benchmarks.streams.client", str(port))
        client = Child(
            "client",
            (*argv, "--streams=20", f"--size={SIZE}", "--events"),
            cores=cores,
            log=tmp_path / "client",
            env={"PYTHONPATH": str(ROOT)},
            talks=True,
        )
        with client:
            assert client.ask(None, 30) == "ready"
            assert client.ask("go", 30) == "going"
            # Answered once an event has come, and each stream has had another.
            report = json.loads(client.ask("stop", 30))
    assert report["per_s"] > 0
    assert 0 <= report["p50_us"] <= report["p90_us"] <= report["p99_us"]
    assert report["lost"] == 0
