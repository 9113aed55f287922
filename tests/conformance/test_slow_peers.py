"""Slow peers: what a connection may keep waiting for, and for how long.

The timeouts are short here. A test waits for what follows from one; none says how long that takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import frames as f
from .backend import Backend
from .frames import END_STREAM, MAX_WINDOW, PREFACE, Code, Setting
from .launch import RunningGateway
from .peer import Peer
from .test_floods import nothing_open
from .test_http2_3_starting import OUR_SETTINGS

HEADER_TIMEOUT_S = 1
STALL_TIMEOUT_S = 1
TIMEOUTS: dict[str, int | str] = {
    "preface_timeout": "1s",
    "header_timeout": f"{HEADER_TIMEOUT_S}s",
    "settings_timeout": "1500ms",
    "stall_timeout": f"{STALL_TIMEOUT_S}s",
}
LARGE = b"/bytes/200000"
GRPC = (b"content-type", b"application/grpc")


@pytest.fixture(scope="module")
def gateway(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the short timeouts, in which nothing may be left over in the end."""
    with RunningGateway(tmp_path_factory.mktemp("slow"), backend.port, TIMEOUTS) as running:
        yield running
        running.wait_until(nothing_open, "all streams to be gone")


@contextmanager
def others_served(gateway: RunningGateway, *counters: str) -> Iterator[None]:
    """Another connection is served before and after, and one of ``counters`` rises."""
    before = gateway.state()
    with Peer(gateway.address).handshake() as other:
        assert other.get(1).status == 200
        yield
        assert other.get(3).status == 200
    after = gateway.state()
    assert any(after[counter] > before[counter] for counter in counters)


UNFINISHED_PREFACES = {
    "nothing": b"",
    "half of it": PREFACE[:12],
    "no SETTINGS": PREFACE,
    "half of SETTINGS": PREFACE + OUR_SETTINGS[:10],
}


@pytest.mark.parametrize("sent", UNFINISHED_PREFACES.values(), ids=UNFINISHED_PREFACES)
def test_preface_timeout(gateway: RunningGateway, sent: bytes) -> None:
    """A connection that never begins is closed; a frame that was begun may be what is late."""
    counters = ("preface_timeout", "header_timeout")
    with (
        others_served(gateway, *counters),
        Peer(gateway.address, answer_settings=False) as peer,
    ):
        if sent:
            peer.send(sent)
        peer.expect_close()


UNFINISHED = {
    "no END_HEADERS": f.headers(1, f.request(), END_STREAM),
    "half of a CONTINUATION": f.headers(1, f.request(), END_STREAM)
    + f.continuation(1, b"x" * 9)[:12],
    "half of a frame header": f.ping()[:5],
    "half of HEADERS": f.headers(1, f.request())[:20],
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_header_timeout(gateway: RunningGateway, sent: bytes) -> None:
    """A field section (or a frame) that is begun and never ended (slow loris)."""
    with others_served(gateway, "header_timeout"), Peer(gateway.address).handshake() as peer:
        peer.send(sent)
        peer.expect_connection_error(Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR)


def test_header_timeout_with_octets_coming(gateway: RunningGateway) -> None:
    """The timeout is for the whole section: an octet now and then does not lengthen it."""
    with others_served(gateway, "header_timeout"), Peer(gateway.address).handshake() as peer:
        peer.send(f.headers(1, f.request(), END_STREAM))
        deadline = time.monotonic() + peer.patience
        while not peer.closed and time.monotonic() < deadline:
            peer.send(f.continuation(1, b"", 0))
            peer.idle(HEADER_TIMEOUT_S / 8)
        assert peer.closed


def test_frames_that_straddle_reads_are_not_slow(gateway: RunningGateway) -> None:
    """Each read ends inside a frame, but every frame is whole in good time."""
    one = f.ping(b"straddle")
    with Peer(gateway.address).handshake() as peer:
        peer.send(one[:13])
        deadline = time.monotonic() + 2 * HEADER_TIMEOUT_S
        while time.monotonic() < deadline:
            peer.idle(HEADER_TIMEOUT_S / 8)
            peer.send(one[13:] + one[:13])
            assert not peer.closed, "closed although no frame was late"
        peer.send(one[13:])
        peer.expect_alive()


def test_settings_timeout(gateway: RunningGateway) -> None:
    """Section 6.5.3: SETTINGS that are never acknowledged."""
    with (
        others_served(gateway, "settings_timeout"),
        Peer(gateway.address, answer_settings=False).handshake() as peer,
    ):
        peer.expect_goaway(Code.SETTINGS_TIMEOUT)


def test_stream_without_window(gateway: RunningGateway) -> None:
    """A stream whose window stays shut is reset; the connection goes on."""
    with others_served(gateway, "stalled_stream"), Peer(gateway.address) as peer:
        peer.handshake({Setting.INITIAL_WINDOW_SIZE: 0})
        peer.send(f.headers(1, f.request(path=LARGE)))
        peer.expect_reset(1, Code.CANCEL, Code.ENHANCE_YOUR_CALM, Code.FLOW_CONTROL_ERROR)
        peer.send(f.settings({Setting.INITIAL_WINDOW_SIZE: f.DEFAULT_WINDOW}))
        assert peer.get(3).status == 200


def test_stream_that_stalls_midway(gateway: RunningGateway) -> None:
    """A window that opens a little and then no more."""
    with others_served(gateway, "stalled_stream"), Peer(gateway.address) as peer:
        peer.handshake({Setting.INITIAL_WINDOW_SIZE: 0})
        peer.send(f.headers(1, f.request(path=LARGE)), f.window_update(1, 1_000))
        peer.expect_data(1, 1_000)
        peer.expect_reset(1, Code.CANCEL, Code.ENHANCE_YOUR_CALM, Code.FLOW_CONTROL_ERROR)


def test_slow_but_steady_stream(gateway: RunningGateway) -> None:
    """A reader that takes a little at a time is slow, but it is no attack."""
    with Peer(gateway.address) as peer:
        peer.handshake({Setting.INITIAL_WINDOW_SIZE: 0})
        peer.send(f.headers(1, f.request(path=b"/bytes/4000")))
        peer.expect_head(1, 200)
        for _ in range(4):
            peer.idle(STALL_TIMEOUT_S * 0.4)
            peer.send(f.window_update(1, 1_000))
            peer.expect_data(1, 1_000)
        assert peer.expect_response(1).status == 200


def test_connection_without_window(gateway: RunningGateway) -> None:
    """The connection's window used up and never given back."""
    with others_served(gateway, "stalled_stream"), Peer(gateway.address) as peer:
        peer.handshake({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        peer.send(f.headers(1, f.request(path=LARGE)))
        peer.expect_reset(1, Code.CANCEL, Code.ENHANCE_YOUR_CALM, Code.FLOW_CONTROL_ERROR)
        assert len(peer.responses[1].body) == f.DEFAULT_WINDOW


def test_answers_that_nobody_reads(backend: Backend, tmp_path: Path) -> None:
    """Requests on and on, each answered by a head alone, which no window holds back.

    Some 24 MB of answers, of which the kernel takes 4 at most; max_connection_buffer is 64 KiB.
    """
    limits: dict[str, int | str] = {"max_connection_buffer": 65_536}
    with (
        RunningGateway(tmp_path, backend.port, limits, match='path_prefix = "/bytes"') as gateway,
        Peer(gateway.address).handshake() as other,
        Peer(gateway.address, receive_buffer=4_096).handshake() as peer,
    ):
        before = gateway.worker_memory()
        for first in range(1, 200_001, 2_000):
            batch = b"".join(
                f.headers(stream, f.request(GRPC, path=b"/%0180d" % stream))
                for stream in range(first, first + 2_000, 2)
            )
            if not peer.try_send(batch, patience=2.0):
                break
        # The buffers, and up to 1,000 streams with their exchanges and plans.
        assert gateway.worker_memory() - before < 12 << 20
        assert gateway.count("out_buffer_limit") > 0
        assert other.get(1, b"/bytes/5").status == 200


def test_peer_that_does_not_read(gateway: RunningGateway) -> None:
    """Windows wide open, but nothing is read from the socket: the stream must not stay for ever."""
    before = gateway.state()
    with Peer(gateway.address).handshake() as other, Peer(gateway.address) as peer:
        peer.handshake({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW})
        peer.send(f.window_update(0, MAX_WINDOW - f.DEFAULT_WINDOW))
        peer.send(f.headers(1, f.request(path=b"/bytes/50000000")))
        stalls = ("stalled_stream", "stalled_connection")
        gateway.wait_until(
            lambda state: (
                any(state[name] > before[name] for name in stalls) and nothing_open(state)
            ),
            "the stalled stream to be given up",
        )
        assert other.get(1).status == 200
