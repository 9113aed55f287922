"""Sessions in memory: ours with each other, and with Python's ``ssl`` as an independent peer."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.certs.make import make_ca, make_crl, make_leaf, make_ocsp_response
from gateway.tls import bindings
from gateway.tls.certificate import Certificate
from gateway.tls.channel import ChannelError
from gateway.tls.session import ServerSession

from .pair import CA, LEAF, certificate, client, join, server


def test_data_both_ways():
    one, two = join(server(), client())
    assert (one.version, one.cipher, one.alpn) == ("TLSv1.3", "TLS_AES_128_GCM_SHA256", b"h2")
    assert one.writable
    assert not one.resumed
    for size in (0, 1, 16_384, 16_385, 300_000):
        octets = bytes(range(256)) * (size // 256 + 1)
        assert two.receive(one.seal(octets[:size])) == octets[:size]
        assert one.receive(two.seal(bytearray(octets[:size]))) == octets[:size]


@given(st.lists(st.integers(1, 2000), max_size=30))
def test_however_it_is_cut(sizes: list[int]):
    one, two = PAIR
    octets = b"some octets " * 400
    sealed = two.seal(octets)
    received = b""
    for size in sizes:
        received += one.receive(sealed[:size])
        sealed = sealed[size:]
    assert received + one.receive(memoryview(sealed)) == octets


PAIR = join(server(), client())


class Python:
    """A client of Python's ``ssl`` module."""

    def __init__(self, **how: Any) -> None:
        self.context = ssl.create_default_context(cadata=CA.pem.decode())
        self.context.set_alpn_protocols(how.pop("protocols", ["h2"]))
        for name, value in how.items():
            setattr(self.context, name, value)
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = self.context.wrap_bio(self.into, self.out, server_hostname="localhost")

    def shake_hands(self, session: ServerSession) -> None:
        for _ in range(10):
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            session.receive(self.out.read())
            self.into.write(session.outgoing())
            if done and session.established:
                return
        raise AssertionError("a handshake that stands still")


def test_an_independent_client():
    peer, session = Python(), server().session()
    peer.shake_hands(session)
    assert peer.tls.version() == "TLSv1.3"
    assert peer.tls.selected_alpn_protocol() == "h2"
    peer.tls.write(b"hello")
    assert session.receive(peer.out.read()) == b"hello"
    peer.into.write(session.seal(b"world"))
    assert peer.tls.read() == b"world"
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    assert session.receive(peer.out.read()) == b""
    assert session.peer_closed
    peer.into.write(session.close())
    peer.tls.unwrap()


def test_tls12_is_refused_unless_it_is_wanted():
    old = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    with pytest.raises(ChannelError, match="unsupported protocol|version"):
        Python(**old).shake_hands(server().session())
    session = server(tls12=True).session()
    Python(**old).shake_hands(session)
    assert session.version == "TLSv1.2"
    assert session.cipher.startswith("ECDHE-ECDSA-AES128-GCM")


def test_no_common_protocol():
    session = server().session()
    with pytest.raises(ChannelError, match="ALPN"):
        Python(protocols=["spdy/3"]).shake_hands(session)
    assert session.outgoing() == b"\x15\x03\x03\x00\x02\x02\x78"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("localhost", "localhost"),
        ("a.example.org", "localhost"),
        ("a.b.example.org", None),
        ("example.org", None),
        ("other.test", "other.test"),
        ("", None),
    ],
)
def test_certificates_by_name(name: str, found: str | None):
    other = certificate(make_leaf(CA, ["other.test"]))
    context = server(certificate(), other)
    chosen = context.choose(name, True)
    assert (found is None) == (chosen is None)
    if chosen is not None:
        assert found in chosen.names


def test_both_kinds_of_keys():
    rsa = certificate(make_leaf(CA, ["localhost"], rsa_key=True))
    context = server(certificate(), rsa)
    assert context.choose("localhost", True) is not rsa
    assert context.choose("localhost", False) is rsa
    # Also for who names nobody, if it has the same names.
    same = certificate(make_leaf(CA, ["localhost", "*.example.org", "127.0.0.1"], rsa_key=True))
    assert len(server(certificate(), same)._default) == 2


def test_strict_names():
    context = server(strict_sni=True)
    session = context.session()
    with pytest.raises(ChannelError, match='no certificate for the server name "nobody.test"'):
        session.receive(client().session("nobody.test").outgoing())
    assert session.outgoing() == b"\x15\x03\x03\x00\x02\x02\x70"


def test_client_certificates():
    good = certificate(make_leaf(CA, ["client.test"], client=True))
    revoked = make_leaf(CA, ["revoked.test"], client=True)
    from cryptography import x509

    crl = x509.load_pem_x509_crl(make_crl(CA, [revoked.certificate]))
    strict = {"client_ca": (CA.certificate,), "client_crls": (crl,)}
    required = server(client_auth="required", **strict)
    ours = client(certificate=good)
    one, two = join(required, ours)
    assert one.peer_certificate() == good.leaf
    one, _ = join(required, ours, ticket=two.ticket())
    assert one.resumed
    assert one.peer_certificate() == good.leaf
    stranger = make_leaf(make_ca(), ["client.test"], client=True)
    for other, why in (
        (client(), "did not return a certificate"),
        (client(certificate=certificate(revoked)), "certificate revoked"),
        (
            client(certificate=Certificate(stranger.certificate, (), stranger.key)),
            "certificate verify failed",
        ),
    ):
        session, mine = required.session(), other.session("localhost")
        session.receive(mine.outgoing())
        mine.receive(session.outgoing())
        with pytest.raises(ChannelError, match=why):
            session.receive(mine.outgoing())
        assert session.outgoing()  # the alert
    one, _ = join(server(client_auth="optional", **strict), client())
    assert one.peer_certificate() is None


def test_whom_a_client_believes():
    for other, name, why in (
        (client(ca=(make_ca().certificate,)), "localhost", "self-signed|unable to get"),
        (client(), "other.test", "hostname mismatch"),
        (client(), "127.0.0.2", "IP address mismatch"),
    ):
        with pytest.raises(ChannelError, match=why):
            join(server(), other, name)
    join(server(), client(), "127.0.0.1")
    join(server(), client(verify=False, ca=()), "other.test")


def test_staples():
    mine = certificate()
    context, other = server(mine), client(require_staple=True)
    with pytest.raises(ChannelError, match="stapled no OCSP response"):
        join(context, other)
    mine.staple = make_ocsp_response(LEAF.certificate, CA.certificate, CA)
    _, two = join(context, other)
    assert two.staple == mine.staple
    one, _ = join(context, other, ticket=two.ticket())
    assert one.resumed
    mine.staple = make_ocsp_response(LEAF.certificate, CA.certificate, make_ca())
    with pytest.raises(ChannelError, match="stapled OCSP response"):
        join(context, other)


def test_must_staple():
    mine = certificate(make_leaf(CA, ["localhost"], must_staple=True))
    context = server(mine)
    with pytest.raises(ChannelError, match="asks for a staple"):
        join(context, client())
    mine.staple = make_ocsp_response(mine.leaf, CA.certificate, CA)
    _, two = join(context, client(require_staple=True))
    mine.staple = b""
    # A resumed session shows no certificate.
    other = client()
    mine.staple = make_ocsp_response(mine.leaf, CA.certificate, CA)
    _, two = join(context, other)
    mine.staple = b""
    one, _ = join(context, other, ticket=two.ticket())
    assert one.resumed


def test_the_end_and_what_is_no_record():
    one, two = join(server(), client())
    assert two.receive(one.close()) == b""
    assert two.peer_closed
    one, two = join(server(), client())
    with pytest.raises(ChannelError, match="a broken record"):
        one.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert one.outgoing()


def test_trimmed_sessions_go_on():
    one, two = join(server(), client())
    one.receive(two.seal(bytes(100_000)))
    for _ in range(3):
        one.trim()
        two.trim()
        assert two.receive(one.seal(b"more")) == b"more"
        assert one.receive(two.seal(b"and back")) == b"and back"
    # Half a record is kept.
    sealed = two.seal(b"in two pieces")
    one.receive(sealed[:10])
    one.trim()
    assert one.receive(sealed[10:]) == b"in two pieces"


def test_keys_are_logged_where_it_is_asked_for():
    lines: list[bytes] = []
    join(server(key_log=lines.append), client())
    assert any(line.startswith(b"CLIENT_TRAFFIC_SECRET_0 ") for line in lines)


def test_the_bindings_have_all_that_is_needed():
    assert bindings.missing(early_data=True) == []
