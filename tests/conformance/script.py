"""Conformance cases as scripts: what is sent, in order, and what must come of it.

A :class:`Case` is a row of steps. Bytes are sent; a function is called with the peer, either to
send what depends on the server's settings or to wait for an outcome. The peer has shaken hands
before the first step unless the case says otherwise. A name starts with the number that the field's
public suite, h2spec, gives the case (chapter/section/number), or with the RFC and section where the
case is ours; the chapters say which section of RFC 9113 a number now belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .peer import Address, Peer

Step = bytes | Callable[[Peer], Any]


class Case:
    """One conformance case: its name and its steps."""

    def __init__(self, name: str, *steps: Step, handshake: bool = True) -> None:
        self.name = name
        self.steps = steps
        self.handshake = handshake

    def run(self, address: Address) -> None:
        """Play the script against the server; raises Mismatch where it departs."""
        with Peer(address) as peer:
            if self.handshake:
                peer.handshake()
            for step in self.steps:
                if isinstance(step, bytes):
                    peer.send(step)
                else:
                    step(peer)


def each(cases: tuple[Case, ...]) -> pytest.MarkDecorator:
    """Parametrize ``case`` over ``cases``; a name given twice is a mistake."""
    ids = [case.name for case in cases]
    assert len(set(ids)) == len(ids), "two cases have one name"
    return pytest.mark.parametrize("case", cases, ids=ids)


def connection_error(*codes: int) -> Step:
    """GOAWAY with one of ``codes`` or a closed connection."""
    return lambda peer: peer.expect_connection_error(*codes)


def stream_error(stream: int, *codes: int) -> Step:
    """RST_STREAM with one of ``codes``, or a connection error in its stead."""
    return lambda peer: peer.expect_stream_error(stream, *codes)


def reset(stream: int, *codes: int) -> Step:
    """RST_STREAM with one of ``codes`` and nothing worse."""
    return lambda peer: peer.expect_reset(stream, *codes)


def goaway(*codes: int) -> Step:
    """GOAWAY with one of ``codes``, then a closed connection."""
    return lambda peer: peer.expect_goaway(*codes)


def closed(peer: Peer) -> None:
    """The connection ends."""
    peer.expect_close()


def head(stream: int, status: int | None = None) -> Step:
    """A response head."""
    return lambda peer: peer.expect_head(stream, status)


def response(stream: int, status: int | None = None) -> Step:
    """A response, complete."""
    return lambda peer: peer.expect_response(stream, status)


def data_of(stream: int, length: int | None = None) -> Step:
    """A DATA frame of that length."""
    return lambda peer: peer.expect_data(stream, length)


def settings_acked(peer: Peer) -> None:
    """Our SETTINGS are acknowledged."""
    peer.expect_settings_ack()


def ping_acked(payload: bytes = bytes(8)) -> Step:
    """A PING sent before is answered with the same payload."""
    return lambda peer: peer.expect_ping_ack(payload)


def alive(peer: Peer) -> None:
    """The connection still answers a PING."""
    peer.expect_alive()


def alive_or_closed(peer: Peer) -> None:
    """The connection answers a PING or has ended, both being right."""
    payload = b"gone or?"
    peer.send(b"\0\0\x08\x06\0\0\0\0\0" + payload)
    peer.wait_or_close(
        lambda f: f.is_ack and f.payload == payload, "PING ACK or a closed connection"
    )
