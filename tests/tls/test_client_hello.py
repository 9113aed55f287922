"""The reader of ClientHellos, given those of two implementations and of nobody."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tls.client_hello import (
    MAX_SIZE,
    ClientHello,
    ClientHelloError,
    ClientHelloReader,
    alert_record,
)

from .pair import client, join, server


def python_hello(name: str | None = "LocalHost", protocols: tuple[str, ...] = ("h2",)) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(list(protocols))
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname=name).do_handshake()
    return out.read()


HELLO = python_hello()


def read(data: bytes) -> ClientHello:
    found = ClientHelloReader().feed(data)
    assert found is not None
    assert found[1] == data
    return found[0]


def test_what_a_client_asks_for():
    data = python_hello("LocalHost", ("h2", "http/1.1"))
    hello = read(data)
    assert hello.server_name == "localhost"
    assert hello.protocols == (b"h2", b"http/1.1")
    assert hello.ecdsa
    assert hello.random == data[11:43]
    assert hello.ticket == b""
    assert not hello.early_data


def test_one_that_names_nobody():
    hello = read(python_hello(None, ()))
    assert hello.server_name == ""
    assert hello.protocols == ()


def test_randoms_differ():
    assert read(python_hello()).random != read(python_hello()).random


def test_by_octets_and_over_several_records():
    reader = ClientHelloReader()
    for octet in HELLO[:-1]:
        assert reader.feed(bytes((octet,))) is None
    found = reader.feed(HELLO[-1:])
    assert found is not None
    assert found == (read(HELLO), HELLO)
    message = HELLO[5:]
    records = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
        for part in (message[:1], message[1:50], message[50:])
    )
    assert read(records) == read(HELLO)


def test_a_ticket_and_early_data_are_seen():
    context, other = server(early_octets=100), client()
    _, session = join(context, other)
    fresh = other.session("localhost", session.ticket())
    hello = read(fresh.outgoing())
    assert len(hello.ticket) > 100
    assert not hello.early_data


def test_a_tls12_ticket():
    context, other = server(tls12=True), client()
    other._context.set_max_proto_version(0x0303)
    _, session = join(context, other)
    hello = read(other.session("localhost", session.ticket()).outgoing())
    assert len(hello.ticket) > 100


@pytest.mark.parametrize(
    ("data", "alert"),
    [
        (b"GET / HTTP/1.1\r\n", -1),
        (b"\x16\x02\x00\x00\x05" + bytes(5), -1),
        (b"\x16\x03\x01\x00\x00", 22),
        (b"\x16\x03\x01\x40\x01" + bytes(10), 22),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", 10),
        (b"\x16\x03\x01\x00\x04\x01\x00\x50\x00", 22),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", 50),
        (HELLO[:5] + HELLO[5:7] + b"\x00\x20" + HELLO[9:], 50),
        (b"\x16\x03\x01\x00\x01\x01" + b"\x15\x03\x03\x00\x02\x02\x28", 10),
    ],
)
def test_what_breaks_the_protocol(data: bytes, alert: int):
    with pytest.raises(ClientHelloError) as caught:
        ClientHelloReader().feed(data)
    assert caught.value.alert == alert


def test_one_that_never_ends():
    # Its records are right, and what they hold is announced to be longer than they are.
    octets = b"\x16\x03\x01\x00\x04\x01\x00\x3f\xff" + b"\x16\x03\x01\x00\x01x" * 4000
    reader = ClientHelloReader()
    for taken in range(0, MAX_SIZE, 64):
        assert reader.feed(octets[taken : taken + 64]) is None
    with pytest.raises(ClientHelloError, match="above 16384 octets"):
        reader.feed(octets[MAX_SIZE : MAX_SIZE + 64])


def test_a_name_that_is_none():
    at = HELLO.index(b"LocalHost")
    for bad in (b"Local\0ost", b"Local\xffost"):
        with pytest.raises(ClientHelloError) as caught:
            read(HELLO[:at] + bad + HELLO[at + 9 :])
        assert caught.value.alert == 47


def refuses_or_reads(octets: bytes) -> None:
    """Nothing else may happen."""
    with contextlib.suppress(ClientHelloError):
        ClientHelloReader().feed(octets)


@given(st.binary(max_size=600))
def test_any_octets(data: bytes):
    for octets in (data, b"\x16\x03\x01" + data, HELLO[: len(data)] + data):
        refuses_or_reads(octets)


@given(st.integers(5, len(HELLO) - 1), st.integers(0, 255))
def test_any_octet_changed(at: int, octet: int):
    refuses_or_reads(HELLO[:at] + bytes((octet,)) + HELLO[at + 1 :])


def test_alerts():
    assert alert_record(112) == b"\x15\x03\x03\x00\x02\x02\x70"
