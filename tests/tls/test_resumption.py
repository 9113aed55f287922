"""Tickets, their keys, and early data."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from OpenSSL import SSL

from gateway.certs.make import make_leaf
from gateway.tls import bindings
from gateway.tls.channel import ChannelError

from .pair import CA, certificate, client, join, server


def test_a_ticket_resumes_and_outlives_a_new_certificate():
    context, other = server(), client()
    _, two = join(context, other)
    one, two = join(context, other, ticket=two.ticket())
    assert one.resumed
    assert two.resumed
    context.replace_certificates([certificate(make_leaf(CA, ["localhost"]))])
    one, _ = join(context, other, ticket=two.ticket())
    assert one.resumed


def test_rotation():
    context, other = server(generations=4, period_s=10.0, started_at=100.0), client()
    assert context.rotate(105.0) == 110.0
    _, two = join(context, other)
    ticket = two.ticket()
    assert context.rotate(110.0) == 120.0
    assert context.generation == 1
    one, two = join(context, other, ticket=ticket)
    assert one.resumed
    _, newer = join(context, other)
    context.rotate(121.0)
    one, _ = join(context, other, ticket=newer.ticket())
    assert one.resumed
    _, two = join(context, other)
    ticket = two.ticket()
    context.rotate(141.0)
    one, _ = join(context, other, ticket=ticket)
    assert not one.resumed
    # Those made at the start are used up.
    assert context.alone
    _, two = join(context, other)
    one, _ = join(context, other, ticket=two.ticket())
    assert one.resumed


def test_keys_that_are_over_are_gone():
    context = server(generations=4, period_s=10.0)
    context.rotate(25.0)
    assert sorted(context._contexts) == [1, 2, 3]


def test_a_worker_that_is_ahead():
    context, other = server(generations=3, period_s=10.0), client()
    context.rotate(10.0)
    _, two = join(context, other)
    ticket = two.ticket()
    context.rotate(9.0)  # as another worker's clock would say
    one, _ = join(context, other, ticket=ticket)
    assert one.resumed


def test_keys_are_shared_over_a_fork():
    script = """
import os, sys
from tests.tls.pair import client, join, server
context, other = server(), client()
_, two = join(context, other)
ticket = two.ticket()
pid = os.fork()
if pid == 0:
    one, _ = join(context, other, ticket=ticket)
    os._exit(0 if one.resumed else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    from tests.conftest import ROOT

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={"PYTHONPATH": path()}, check=False
    )
    assert done.returncode == 0


def path() -> str:
    from tests.conftest import ROOT, package_folder

    return f"{package_folder().parent}:{ROOT}"


def test_strangers_tickets_are_ignored():
    other = client()
    _, two = join(server(), other)
    one, _ = join(server(), other, ticket=two.ticket())
    assert not one.resumed


class Early:
    """A client's connection whose first flight has early data."""

    def __init__(self, other: Any, ticket: Any, data: bytes) -> None:
        connection = SSL.Connection(other._context)
        connection.set_connect_state()
        connection.set_tlsext_host_name(b"localhost")
        connection.set_session(ticket)
        self.pipe = bindings.Pipe(connection)
        self.pipe.write_early(data)
        self.flight = self.pipe.take()


def accepting(**settings: Any) -> Any:
    context = server(early_octets=16_384, **settings)
    seen: set[bytes] = set()

    def first_time(random: bytes) -> bool:
        if random in seen:
            return False
        seen.add(random)
        return True

    context.accept_early = first_time
    return context


def test_early_data_is_answered_before_the_handshake_is_complete():
    context, other = accepting(), client()
    _, two = join(context, other)
    early = Early(other, two.ticket(), b"a request")
    session = context.session()
    assert session.receive(early.flight) == b"a request"
    assert session.early_octets == 9
    assert (session.established, session.writable, session.alpn) == (False, True, b"h2")
    early.pipe.feed(session.seal(b"an answer"))
    assert early.pipe.shake_hands()
    assert early.pipe.read() == b"an answer"
    early.pipe.write(b"more")
    assert session.receive(early.pipe.take()) == b"more"
    assert session.early_octets == 0
    assert session.established
    assert session.resumed


def test_a_flight_is_taken_once():
    context, other = accepting(), client()
    _, two = join(context, other)
    early = Early(other, two.ticket(), b"a request")
    assert context.session().receive(early.flight) == b"a request"
    second = context.session()
    assert second.receive(early.flight) == b""
    assert (second.early_data, second.writable, second.early_octets) == (False, False, 0)


def test_refused_early_data_costs_a_round_trip_only():
    context, other = server(early_octets=16_384), client()  # refuses all
    _, two = join(context, other)
    early = Early(other, two.ticket(), b"a request")
    session = context.session()
    assert session.receive(early.flight) == b""
    early.pipe.feed(session.outgoing())
    assert early.pipe.shake_hands()
    early.pipe.write(b"a request")
    assert session.receive(early.pipe.take()) == b"a request"
    assert session.early_octets == 0
    assert session.resumed


def test_more_early_data_than_was_allowed():
    big = accepting()
    other = client()
    _, two = join(big, other)
    ticket = two.ticket()
    early = Early(other, ticket, bytes(16_000))
    early.pipe.write_early(bytes(384))
    assert len(big.session().receive(early.flight + early.pipe.take())) == 16_384
    early.pipe.write_early(b"x")
    assert early.pipe.failed  # OpenSSL's client keeps to what the ticket says


def test_without_tickets_nothing_is_resumed():
    context, other = server(tickets=0), client()
    _, two = join(context, other)
    one, _ = join(context, other, ticket=two.ticket())
    assert not one.resumed


def test_a_handshake_that_goes_wrong_after_early_data():
    context, other = accepting(), client()
    _, two = join(context, other)
    early = Early(other, two.ticket(), b"a request")
    session = context.session()
    session.receive(early.flight)
    with pytest.raises(ChannelError):
        session.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
