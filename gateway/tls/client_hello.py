"""What a client asks for, read before OpenSSL does (RFC 8446 section 4.1.2).

The certificate, the generation of ticket keys and whether early data is taken are chosen before a
connection is made, because OpenSSL's own callback for that (``SSL_CTX_set_client_hello_cb``) is not
in the bindings. Until the message is whole, a connection costs its octets and nothing more.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MAX_SIZE: Final = 16_384
"""Octets of a ClientHello with its records' headers; those seen in the field are below 2,000."""

UNRECOGNIZED_NAME: Final = 112
NO_APPLICATION_PROTOCOL: Final = 120
INTERNAL_ERROR: Final = 80
_DECODE_ERROR: Final = 50
_UNEXPECTED_MESSAGE: Final = 10
_RECORD_OVERFLOW: Final = 22

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_HOST_NAME: Final = 0
_SERVER_NAME: Final = 0
_ILLEGAL_PARAMETER: Final = 47
_SIGNATURE_ALGORITHMS: Final = 13
_ALPN: Final = 16
_SESSION_TICKET: Final = 35
_PRE_SHARED_KEY: Final = 41
_EARLY_DATA: Final = 42
_MAX_RECORD: Final = 16_384
_MAX_HOST_NAME: Final = 255

# SignatureScheme values (RFC 8446 section 4.2.3); a list's low octet 3 is ECDSA in TLS 1.2, too.
_ECDSA: Final = frozenset({0x0403, 0x0503, 0x0603, 0x0203})


class ClientHelloError(Exception):
    """It breaks the protocol; ``alert`` is the code to answer with (RFC 8446 section 6), -1 for a
    peer that does not speak TLS."""

    def __init__(self, alert: int, message: str) -> None:
        super().__init__(message)
        self.alert = alert


class ClientHello(NamedTuple):
    """``server_name`` is in lower case, empty without one. ``ecdsa`` says whether the client takes
    certificates with such a key. ``ticket`` is the first one offered: the identity of a pre-shared
    key, or that of RFC 5077. ``random`` is new in each honest message, and what proves a
    pre-shared key covers it, so nobody else can change it in a message that is sent again.
    """

    server_name: str
    protocols: tuple[bytes, ...]
    ecdsa: bool
    ticket: bytes
    random: bytes
    early_data: bool


class ClientHelloReader:
    """Collects octets until a ClientHello is whole."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes | memoryview) -> tuple[ClientHello, bytes] | None:
        """The message, and all octets that came, for OpenSSL; None: it is not whole yet.

        Raises:
            ClientHelloError: it is malformed, too large, or no TLS at all.
        """
        self._data += bytes(data)
        body = _handshake_body(self._data)
        if body is None:
            if len(self._data) > MAX_SIZE:
                raise ClientHelloError(_RECORD_OVERFLOW, f"a ClientHello above {MAX_SIZE} octets")
            return None
        try:
            hello = _parse(_Reader(body))
        except (IndexError, struct.error):
            raise ClientHelloError(_DECODE_ERROR, "a malformed ClientHello") from None
        data, self._data = self._data, b""
        return hello, data


def alert_record(code: int) -> bytes:
    """A fatal alert in cleartext (RFC 8446 section 6)."""
    return bytes((21, 3, 3, 0, 2, 2, code))


def _handshake_body(data: bytes) -> bytes | None:
    """The body of the first handshake message, out of its records; None if it is not whole."""
    message = b""
    at = 0
    while at + 5 <= len(data):
        kind, major, _, size = struct.unpack_from("!BBBH", data, at)
        if kind != _HANDSHAKE or major != 3:
            if at == 0:
                raise ClientHelloError(-1, "what came is no TLS")
            raise ClientHelloError(_UNEXPECTED_MESSAGE, "a record within the ClientHello")
        if not 0 < size <= _MAX_RECORD:
            raise ClientHelloError(_RECORD_OVERFLOW, f"a record of {size} octets")
        message += data[at + 5 : at + 5 + size]
        if message[0:1] not in (b"", bytes((_CLIENT_HELLO,))):
            raise ClientHelloError(_UNEXPECTED_MESSAGE, "the first message is no ClientHello")
        if len(message) >= 4:
            length = int.from_bytes(message[1:4], "big")
            if length > MAX_SIZE:
                raise ClientHelloError(_RECORD_OVERFLOW, f"a ClientHello of {length} octets")
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        at += 5 + size
    if at == 0 and data and data[0] != _HANDSHAKE:
        raise ClientHelloError(-1, "what came is no TLS")
    return None


class _Reader:
    """Reads vectors with a length before them; IndexError where one ends too early."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise IndexError
        octets = self._data[self.at : end]
        self.at = end
        return octets

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """A vector whose length stands in ``size`` octets."""
        return self.take(self.number(size))

    @property
    def more(self) -> bool:
        return self.at < len(self._data)


def _parse(reader: _Reader) -> ClientHello:
    reader.take(2)  # version
    random = reader.take(32)
    reader.vector(1)  # session id
    reader.vector(2)  # suites
    reader.vector(1)  # compression
    extensions: dict[int, bytes] = {}
    if reader.more:
        inner = _Reader(reader.vector(2))
        while inner.more:
            kind = inner.number(2)
            if kind in extensions:
                raise ClientHelloError(_ILLEGAL_PARAMETER, f"extension {kind} twice")
            extensions[kind] = inner.vector(2)
    return ClientHello(
        _server_name(extensions.get(_SERVER_NAME)),
        _protocols(extensions.get(_ALPN)),
        _takes_ecdsa(extensions.get(_SIGNATURE_ALGORITHMS)),
        _first_ticket(extensions),
        random,
        _EARLY_DATA in extensions,
    )


def _server_name(data: bytes | None) -> str:
    """RFC 6066 section 3; a trailing dot is no part of a host name there."""
    if not data:
        return ""
    names = _Reader(_Reader(data).vector(2))
    while names.more:
        kind, name = names.number(1), names.vector(2)
        if kind == _HOST_NAME:
            if not name or len(name) > _MAX_HOST_NAME or not name.isascii() or b"\0" in name:
                raise ClientHelloError(_DECODE_ERROR, "a malformed server_name")
            return name.decode("ascii").lower().rstrip(".")
    return ""


def _protocols(data: bytes | None) -> tuple[bytes, ...]:
    if data is None:
        return ()
    names = _Reader(_Reader(data).vector(2))
    protocols = []
    while names.more:
        protocols.append(names.vector(1))
    return tuple(protocols)


def _takes_ecdsa(data: bytes | None) -> bool:
    if data is None:
        return False
    schemes = _Reader(data).vector(2)
    return any(
        int.from_bytes(schemes[i : i + 2], "big") in _ECDSA for i in range(0, len(schemes), 2)
    )


def _first_ticket(extensions: dict[int, bytes]) -> bytes:
    """The first identity of ``pre_shared_key`` (RFC 8446 section 4.2.11), or a TLS 1.2 ticket."""
    offered = extensions.get(_PRE_SHARED_KEY)
    if offered is None:
        return extensions.get(_SESSION_TICKET, b"")
    return _Reader(_Reader(offered).vector(2)).vector(2)
