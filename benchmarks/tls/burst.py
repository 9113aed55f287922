"""Bursts: many handshakes one after the other, for what they cost the proxy.

``request`` says whether each connection has a GET; without one the client closes as soon as the
handshake is complete, and waits for the proxy's end. A resumed handshake offers the same ticket
each time: whoever keeps no account of tickets (for early data) takes it again.
"""

from __future__ import annotations

import msgspec
from OpenSSL import SSL

from benchmarks.tls.stream import TlsStream
from benchmarks.tls.visits import REQUEST, Visitor, connect, read_response


class Burst(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``count`` connections to ``port``."""

    count: int
    port: int
    resumed: bool = False
    request: bool = False


def run(burst: Burst, visitor: Visitor) -> None:
    """OSError if a handshake does not go as asked for."""
    session = visitor.ticket(burst.port) if burst.resumed else None
    for _ in range(burst.count):
        _one(burst, visitor.context, session)


def _one(burst: Burst, context: SSL.Context, session: SSL.Session | None) -> None:
    stream = TlsStream(context, connect(burst.port, 0), session=session)
    stream.handshake()
    if stream.resumed != burst.resumed:
        raise ConnectionError("the session was not resumed")
    if burst.request:
        stream.sendall(REQUEST)
        read_response(stream.recv)
    stream.finish()
