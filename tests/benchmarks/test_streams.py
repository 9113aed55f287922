"""The streams' server and client, against each other without a proxy."""

from __future__ import annotations

import json
import os
import socket
import sys
from array import array
from pathlib import Path

import pytest

from benchmarks import backends
from benchmarks.process import ROOT, Child
from benchmarks.streams import frames
from benchmarks.streams.backend import Connection as Served
from benchmarks.streams.client import Connection
from benchmarks.streams.events import Broken

SIZE = 64
LENGTH = frames.PREFIX_BYTES + SIZE


def message(stamp: int) -> bytes:
    return b"\0" + SIZE.to_bytes(4, "big") + frames.STAMP.pack(stamp) + b"t" * (SIZE - 8)


@pytest.fixture
def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_messages_are_found_however_frames_cut_them(listening: socket.socket) -> None:
    with listening:
        client = Connection(listening.getsockname()[1], 2, SIZE)
        server, _ = listening.accept()
    with server, client.sock:
        both = message(7) + message(8)
        cut = LENGTH + 20
        server.sendall(
            frames.settings()
            + frames.frame(frames.DATA, 0, 1, both[:cut])
            + frames.frame(frames.DATA, 0, 3, message(9))
            + frames.frame(frames.DATA, 0, 1, both[cut:])
        )
        found = array("Q")
        client.sock.settimeout(20)
        while len(found) < 3:
            client.read(found)
        assert sorted(found) == [7, 8, 9]
        assert not client.waiting


@pytest.mark.parametrize(
    "end",
    [
        frames.frame(frames.DATA, frames.END_STREAM, 1),
        frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, b"\x88"),
        frames.frame(frames.RST_STREAM, 0, 1, b"\0\0\0\x08"),
        frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
        b"",
    ],
)
def test_an_end_is_noticed(listening: socket.socket, end: bytes) -> None:
    with listening:
        client = Connection(listening.getsockname()[1], 1, SIZE)
        server, _ = listening.accept()
    with client.sock, server:
        server.recv(65_536)  # closing with unread data would be a reset
        server.sendall(end)
        server.shutdown(socket.SHUT_WR)
        client.sock.settimeout(20)
        with pytest.raises(Broken):
            client.read(array("Q"))


def test_the_server_keeps_to_the_windows_it_is_given() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        served = Served(ours, LENGTH)
        start = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 100)])
        request = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x83")
        (stream,) = served.receive(start + request)
        assert (stream.window, served.window) == (100, frames.DEFAULT_WINDOW)
        served.receive(frames.window_update(1, 50) + frames.window_update(0, 5))
        assert (stream.window, served.window) == (150, frames.DEFAULT_WINDOW + 5)
        served.receive(frames.settings([(frames.INITIAL_WINDOW_SIZE, 40)]))
        assert stream.window == 90
        served.receive(frames.frame(frames.RST_STREAM, 0, 1, bytes(4)))
        assert not stream.open


def test_client_and_server_together(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    plan = backends.StreamPlan(rate=200, size=SIZE)
    with backends.start_stream_backend(plan, tmp_path, cores) as server:
        port = backends.ports_of(server)[1]
        argv = (sys.executable, "-m", "benchmarks.streams.client", str(port))
        client = Child(
            "client",
            (*argv, "--streams=150", f"--size={SIZE}"),
            cores=cores,
            log=tmp_path / "client",
            env={"PYTHONPATH": str(ROOT)},
            talks=True,
        )
        with client:
            assert client.ask(None, 30) == "ready"
            assert client.ask("go", 30) == "going"
            # Answered once a message has come.
            report = json.loads(client.ask("stop", 30))
    assert report["per_s"] > 0
    assert 0 <= report["p50_us"] <= report["p90_us"] <= report["p99_us"]
