"""The PROXY protocol, versions 1 and 2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.proxy_protocol import (
    MAX_V2,
    V2_SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    ProxyHeaderReader,
    crc32c,
    write_v1,
    write_v2,
)

PORTS = st.integers(0, 65535)
V4 = st.ip_addresses(v=4).map(str)
V6 = st.ip_addresses(v=6).map(str)
PAIRS = st.one_of(
    st.tuples(st.tuples(V4, PORTS), st.tuples(V4, PORTS)),
    st.tuples(st.tuples(V6, PORTS), st.tuples(V6, PORTS)),
)


def feed(octets: bytes, step: int) -> ProxyHeader | None:
    reader = ProxyHeaderReader()
    for start in range(0, len(octets), step):
        header = reader.feed(octets[start : start + step])
        if header is not None:
            return header._replace(rest=header.rest + octets[start + step :])
    return None


@given(PAIRS, st.sampled_from([write_v1, write_v2]), st.binary(max_size=20), st.integers(1, 300))
def test_round_trip_at_every_cut(pair, write, rest: bytes, step: int) -> None:
    source, destination = pair
    assert feed(write(source, destination) + rest, step) == (source, destination, rest)


@pytest.mark.parametrize("write", [write_v1, write_v2])
def test_ends_that_are_not_known(write) -> None:
    assert feed(write(None, None) + b"GET", 1) == (None, None, b"GET")
    assert feed(write(("::1", 1), ("127.0.0.1", 2)), 1) == (None, None, b"")


@pytest.mark.parametrize(
    "octets",
    [
        b"GET / HTTP/1.1\r\n",
        b"PROXY",  # is only a beginning, see below
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n",
        b"PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP4 " + b"1" * 200,
        V2_SIGNATURE + b"\x11\x11\0\x0c" + bytes(12),
        V2_SIGNATURE + b"\x22\x11\0\x0c" + bytes(12),
        V2_SIGNATURE + b"\x21\x11\0\x0b" + bytes(11),
        V2_SIGNATURE + b"\x21\x21\0\x0c" + bytes(12),
        V2_SIGNATURE + b"\x21\x11" + (MAX_V2).to_bytes(2, "big"),
        V2_SIGNATURE + b"\x21\x11\0\x0e" + bytes(12) + b"\x01\0",
        V2_SIGNATURE + b"\x21\x11\0\x10" + bytes(12) + b"\x01\0\x05a",
        V2_SIGNATURE + b"\x21\x11\0\x13" + bytes(12) + b"\x03\0\x04abcd",
    ],
)
@pytest.mark.parametrize("step", [1, 5000])
def test_malformed(octets: bytes, step: int) -> None:
    if octets == b"PROXY":
        assert feed(octets, step) is None
        return
    with pytest.raises(ProxyHeaderError):
        feed(octets, step)


def test_other_families_keep_the_connection_s_own_ends() -> None:
    for kind in (b"\x00", b"\x12", b"\x31"):
        octets = V2_SIGNATURE + b"\x21" + kind + b"\0\x04abcdREST"
        assert feed(octets, 3) == (None, None, b"REST")
    assert feed(b"PROXY UNKNOWN whatever it says\r\nREST", 4) == (None, None, b"REST")


def test_additional_data_and_its_checksum() -> None:
    """The check value of CRC-32C over "123456789" is e3069283 (RFC 9260, and every catalogue)."""
    assert crc32c(b"123456789") == 0xE3069283
    body = bytes(range(12)) + b"\x04\0\x02hi" + b"\x03\0\x04"
    head = V2_SIGNATURE + b"\x21\x11" + (len(body) + 4).to_bytes(2, "big") + body
    whole = head + crc32c(head + bytes(4)).to_bytes(4, "big")
    assert feed(whole + b"!", 7) == (("0.1.2.3", 0x0809), ("4.5.6.7", 0x0A0B), b"!")
