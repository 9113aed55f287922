"""Addresses: three forms, each in one spelling once it is read."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", TcpAddress("127.0.0.1", 8080)),
        ("Model.Example:1", TcpAddress("model.example", 1)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:80", TcpAddress("::1", 80)),
        ("[0:0::1]:65535", TcpAddress("::1", 65535)),
        ("[fe80::1%eth0]:80", TcpAddress("fe80::1%eth0", 80)),
        ("unix:/run/gateway.sock", UnixAddress("/run/gateway.sock")),
        ("unix:/" + "a" * 106, UnixAddress("/" + "a" * 106)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no port"),
        ("localhost", "has no port"),
        (":8080", 'write "0.0.0.0:8080"'),
        ("::1:8080", r'written "\[::1\]:8080"'),
        ("[::1]", "is not an address"),
        ("[::1:8080", "is not an address"),
        ("[::g]:80", "not an IPv6 address"),
        ("1.2.3.256:80", "not an IPv4 address"),
        ("1.2.3:80", "not an IPv4 address"),
        ("http://a:80", "is ambiguous"),
        ("a/b:80", "not a host name"),
        ("a b:80", "not a host name"),
        ("host:", "not a port"),
        ("host:http", "not a port"),
        ("host:65536", "not a port"),
        ("host:-1", "not a port"),
        ("host:\u0668", "not a port"),
        ("unix:run.sock", "absolute path"),
        ("unix:", "absolute path"),
        ("unix:/" + "a" * 107, "at most 107 bytes"),
        ("unix:/" + "é" * 54, "at most 107 bytes"),
        ("unix:/a\0b", "zero byte"),
    ],
)
def test_what_is_no_address(text, says):
    with pytest.raises(ValueError, match=says):
        parse_address(text)


_hosts = st.ip_addresses().map(str) | st.sampled_from(["localhost", "a-1.example"])


@given(_hosts, st.integers(0, 65535))
def test_an_address_that_is_written_is_read_back(host, port):
    address = TcpAddress(host, port)
    assert parse_address(str(address)) == address


@given(st.ip_addresses(v=6))
def test_spellings_of_one_address_are_equal(ip: ipaddress.IPv6Address):
    assert parse_address(f"[{ip.exploded}]:1") == parse_address(f"[{ip.compressed}]:1")


@given(st.text(max_size=20))
def test_any_text_is_an_address_or_a_value_error(text):
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address
