"""A server and a client session, joined in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.certs.make import Issued, make_ca, make_leaf
from gateway.tls.certificate import Certificate
from gateway.tls.client import ClientContext, ClientSettings
from gateway.tls.server import ServerContext, ServerSettings
from gateway.tls.session import ClientSession, ServerSession

CA = make_ca()
LEAF = make_leaf(CA, ["localhost", "*.example.org", "127.0.0.1"])


def certificate(issued: Issued = LEAF) -> Certificate:
    """As it would be read from files."""
    return Certificate(issued.certificate, (CA.certificate,), issued.key)


def server(*certificates: Certificate, **settings: Any) -> ServerContext:
    """A context; ``generations``, ``period_s``, ``started_at`` go to it, the rest are settings."""
    own = {
        key: settings.pop(key)
        for key in ("generations", "period_s", "started_at")
        if key in settings
    }
    return ServerContext(ServerSettings(**settings), certificates or (certificate(),), **own)


def client(**settings: Any) -> ClientContext:
    """One that trusts the CA."""
    settings.setdefault("ca", (CA.certificate,))
    return ClientContext(ClientSettings(**settings), lambda: datetime.now(UTC))


def join(
    context: ServerContext, other: ClientContext, name: str = "localhost", ticket: Any = None
) -> tuple[ServerSession, ClientSession]:
    """Both after the handshake. Raises ChannelError of the side that fails first."""
    one, two = context.session(), other.session(name, ticket)
    while not (one.established and two.established):
        sent = two.outgoing()
        if sent:
            one.receive(sent)
        answered = one.outgoing()
        if answered:
            two.receive(answered)
        assert sent or answered, "a handshake that stands still"
    # Tickets.
    two.receive(one.outgoing())
    return one, two
