"""The PROXY protocol, versions 1 and 2: a header that says whose connection it is.

Source: proxy-protocol.txt of HAProxy, sections 2.1 (text) and 2.2 (binary). It stands once, before
anything else. Additional data (TLVs) of version 2 are skipped, but for the checksum (section
2.2.3), which is checked where there is one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, NamedTuple

V2_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
MAX_V1: Final = 107
"""Octets of a text header with its CRLF (section 2.1)."""
MAX_V2: Final = 4096
"""Octets of a binary header: addresses take up to 216, the rest is for additional data."""

End = tuple[str, int]
"""A host and a port."""

_TCP: Final = {0x11: 4, 0x21: 16}
_CRC32C_TLV: Final = 0x03


class ProxyHeaderError(Exception):
    """Octets that are no PROXY protocol header; the message names the rule."""


class ProxyHeader(NamedTuple):
    """What a header says. Without ``source`` the connection's own ends hold (LOCAL, UNKNOWN).

    ``rest`` are the octets that came behind it.
    """

    source: End | None
    destination: End | None
    rest: bytes


class ProxyHeaderReader:
    """Collects a header that may come in pieces."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> ProxyHeader | None:
        """Take octets; the header when it is whole, else None.

        Raises:
            ProxyHeaderError: it is none, or too long.
        """
        self._data += data
        data = self._data
        if data[:12] == V2_SIGNATURE[: len(data)]:
            return _read_v2(data)
        if data[:6] == b"PROXY "[: len(data)]:
            return _read_v1(data)
        raise ProxyHeaderError('neither "PROXY " nor the signature of version 2')


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_V1)
    if end < 0:
        if len(data) >= MAX_V1:
            raise ProxyHeaderError("no CRLF in the first 107 octets (2.1)")
        return None
    rest = data[end + 2 :]
    parts = data[:end].split(b" ")
    if parts[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(None, None, rest)
    if len(parts) != 6 or parts[1] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError("not PROXY TCP4|TCP6 source destination port port (2.1)")
    version = 4 if parts[1] == b"TCP4" else 6
    source = _v1_address(parts[2], version), _v1_port(parts[4])
    destination = _v1_address(parts[3], version), _v1_port(parts[5])
    return ProxyHeader(source, destination, rest)


def _v1_address(text: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(text.decode("ascii"))
    except (ValueError, UnicodeDecodeError):
        address = None
    if address is None or address.version != version or b"%" in text:
        raise ProxyHeaderError(f"no IPv{version} address where one must be (2.1)")
    return str(address)


def _v1_port(text: bytes) -> int:
    if (
        not text.isdigit()
        or len(text) > 5
        or int(text) > 65535
        or (len(text) > 1 and text[0] == 48)
    ):
        raise ProxyHeaderError("no port where one must be (2.1)")
    return int(text)


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    if data[12] >> 4 != 2:
        raise ProxyHeaderError("the version is not 2 (2.2)")
    command = data[12] & 0x0F
    if command > 1:
        raise ProxyHeaderError("the command is neither LOCAL nor PROXY (2.2)")
    length = int.from_bytes(data[14:16], "big")
    end = 16 + length
    if end > MAX_V2:
        raise ProxyHeaderError(f"longer than {MAX_V2} octets")
    if len(data) < end:
        return None
    rest = data[end:]
    kind = data[13]
    size = _TCP.get(kind)
    if command == 0 or size is None:
        # Other families and datagrams: the receiver keeps the connection's own ends (2.2).
        return ProxyHeader(None, None, rest)
    if length < 2 * size + 4:
        raise ProxyHeaderError("shorter than its addresses (2.2)")
    _check_crc32c(data[:end], 16 + 2 * size + 4)
    source = str(ipaddress.ip_address(data[16 : 16 + size]))
    destination = str(ipaddress.ip_address(data[16 + size : 16 + 2 * size]))
    at = 16 + 2 * size
    return ProxyHeader(
        (source, int.from_bytes(data[at : at + 2], "big")),
        (destination, int.from_bytes(data[at + 2 : at + 4], "big")),
        rest,
    )


def _check_crc32c(header: bytes, at: int) -> None:
    """Check the checksum among the additional data (2.2.3), where it is there."""
    while at < len(header):
        if at + 3 > len(header):
            raise ProxyHeaderError("additional data that is cut off (2.2)")
        size = int.from_bytes(header[at + 1 : at + 3], "big")
        end = at + 3 + size
        if end > len(header):
            raise ProxyHeaderError("additional data that is cut off (2.2)")
        if header[at] == _CRC32C_TLV:
            if size != 4:
                raise ProxyHeaderError("a checksum that is not 4 octets (2.2.3)")
            zeroed = header[: at + 3] + bytes(4) + header[end:]
            if crc32c(zeroed) != int.from_bytes(header[at + 3 : end], "big"):
                raise ProxyHeaderError("the checksum is wrong (2.2.3)")
        at = end


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), as RFC 9260 appendix A has it."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_v1(source: End | None, destination: End | None) -> bytes:
    """A text header; without ends, or with ends of two families, it says UNKNOWN."""
    ends = _ends(source, destination)
    if ends is None:
        return b"PROXY UNKNOWN\r\n"
    (one, one_port), (other, other_port) = ends
    return f"PROXY TCP{one.version} {one} {other} {one_port} {other_port}\r\n".encode()


def write_v2(source: End | None, destination: End | None) -> bytes:
    """A binary header; without ends, or with ends of two families, it says LOCAL."""
    ends = _ends(source, destination)
    if ends is None:
        return V2_SIGNATURE + b"\x20\0\0\0"
    (one, one_port), (other, other_port) = ends
    packed = one.packed + other.packed + one_port.to_bytes(2, "big") + other_port.to_bytes(2, "big")
    kind = b"\x11" if one.version == 4 else b"\x21"
    return V2_SIGNATURE + b"\x21" + kind + len(packed).to_bytes(2, "big") + packed


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _ends(
    source: End | None, destination: End | None
) -> tuple[tuple[_Ip, int], tuple[_Ip, int]] | None:
    if source is None or destination is None:
        return None
    read: Callable[[str], _Ip] = ipaddress.ip_address
    one, other = read(source[0].partition("%")[0]), read(destination[0].partition("%")[0])
    if one.version != other.version:
        return None
    return (one, source[1]), (other, destination[1])
