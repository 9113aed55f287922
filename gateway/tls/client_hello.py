"""What a client asks for, read before OpenSSL does (RFC 8446 section 4.1.2).

The certificate, the generation of ticket keys and whether early data is taken are chosen before a
connection is made, because OpenSSL's own callback for that (``SSL_CTX_set_client_hello_cb``) is not
in the bindings. Until the message is whole, a connection costs its octets and nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

MAX_SIZE: Final = 16_384
"""Octets of a ClientHello with its records' headers; those seen in the field are below 2,000."""

UNRECOGNIZED_NAME: Final = 112
NO_APPLICATION_PROTOCOL: Final = 120
INTERNAL_ERROR: Final = 80
_DECODE_ERROR: Final = 50
_UNEXPECTED_MESSAGE: Final = 10
_RECORD_OVERFLOW: Final = 22

_ILLEGAL_PARAMETER: Final = 47
_MAX_RECORD: int = cython.declare(cython.Py_ssize_t, 16_384)
_MAX_HOST_NAME: int = cython.declare(cython.Py_ssize_t, 255)
_MOST: int = cython.declare(cython.Py_ssize_t, MAX_SIZE)

_HANDSHAKE: int = cython.declare(cython.int, 22)
_CLIENT_HELLO: int = cython.declare(cython.int, 1)
_HOST_NAME: int = cython.declare(cython.int, 0)

# Extensions (RFC 8446 section 4.2).
_SERVER_NAME: int = cython.declare(cython.int, 0)
_SIGNATURE_ALGORITHMS: int = cython.declare(cython.int, 13)
_ALPN: int = cython.declare(cython.int, 16)
_SESSION_TICKET: int = cython.declare(cython.int, 35)
_PRE_SHARED_KEY: int = cython.declare(cython.int, 41)
_EARLY_DATA: int = cython.declare(cython.int, 42)

# SignatureScheme values (RFC 8446 section 4.2.3): the low octet of ECDSA's is 3 in TLS 1.2, too.
_ECDSA: int = cython.declare(cython.int, 3)


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
            hello = _parse(body)
        except IndexError:
            raise ClientHelloError(_DECODE_ERROR, "a malformed ClientHello") from None
        data, self._data = self._data, b""
        return hello, data


def alert_record(code: int) -> bytes:
    """A fatal alert in cleartext (RFC 8446 section 6)."""
    return bytes((21, 3, 3, 0, 2, 2, code))


def _handshake_body(data: bytes) -> bytes | None:
    """The body of the first handshake message, out of its records; None if it is not whole."""
    size: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    record: cython.Py_ssize_t
    length: cython.Py_ssize_t
    message: bytes = b""
    if size and data[0] != _HANDSHAKE:
        raise ClientHelloError(-1, "what came is no TLS")
    while at + 5 <= size:
        if data[at] != _HANDSHAKE or data[at + 1] != 3:
            if at == 0:
                raise ClientHelloError(-1, "what came is no TLS")
            raise ClientHelloError(_UNEXPECTED_MESSAGE, "a record within the ClientHello")
        record = (data[at + 3] << 8) | data[at + 4]
        if not 0 < record <= _MAX_RECORD:
            raise ClientHelloError(_RECORD_OVERFLOW, f"a record of {record} octets")
        message += data[at + 5 : at + 5 + record]
        if message and message[0] != _CLIENT_HELLO:
            raise ClientHelloError(_UNEXPECTED_MESSAGE, "the first message is no ClientHello")
        if len(message) >= 4:
            length = (message[1] << 16) | (message[2] << 8) | message[3]
            if length > _MOST:
                raise ClientHelloError(_RECORD_OVERFLOW, f"a ClientHello of {length} octets")
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        at += 5 + record
    return None


def _parse(data: bytes) -> ClientHello:
    """Read the message; IndexError where a vector ends too early."""
    name: str = ""
    protocols: tuple[bytes, ...] = ()
    ecdsa: bool = False
    ticket: bytes = b""
    early_data: bool = False
    has_psk: cython.bint = False
    kind: cython.int
    at: cython.Py_ssize_t = 34  # behind version and random
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    at += 1 + data[at]  # session id
    at += 2 + _u16(data, at)  # suites
    at += 1 + data[at]  # compression
    end = len(data)
    if at > end:
        raise IndexError
    if at < end:
        stop = at + 2 + _u16(data, at)
        if stop != end:
            raise IndexError
        at += 2
    while at < end:
        kind = _u16(data, at)
        stop = at + 4 + _u16(data, at + 2)
        at += 4
        if stop > end:
            raise IndexError
        if kind == _SERVER_NAME:
            name = _server_name(data, at, stop)
        elif kind == _ALPN:
            protocols = _protocols(data, at, stop)
        elif kind == _SIGNATURE_ALGORITHMS:
            ecdsa = _takes_ecdsa(data, at, stop)
        elif kind == _PRE_SHARED_KEY:
            # The first identity (RFC 8446 section 4.2.11).
            has_psk = True
            ticket = _vector(data, at + 4, stop, _u16(data, at + 2))
        elif kind == _SESSION_TICKET and not has_psk:
            ticket = data[at:stop]
        elif kind == _EARLY_DATA:
            early_data = True
        at = stop
    return ClientHello(name, protocols, ecdsa, ticket, data[2:34], early_data)


@cython.cfunc
def _u16(data: bytes, at: cython.Py_ssize_t) -> cython.int:
    if at + 2 > len(data):
        raise IndexError
    return (data[at] << 8) | data[at + 1]


@cython.cfunc
def _vector(
    data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> bytes:
    if at + size > end:
        raise IndexError
    return data[at : at + size]


def _server_name(data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> str:
    """RFC 6066 section 3; a trailing dot is no part of a host name there."""
    size: cython.Py_ssize_t
    name: bytes
    if at == end:
        return ""
    at += 2
    while at < end:
        size = _u16(data, at + 1)
        name = _vector(data, at + 3, end, size)
        if data[at] == _HOST_NAME:
            if not 0 < size <= _MAX_HOST_NAME or not name.isascii() or b"\0" in name:
                raise ClientHelloError(_ILLEGAL_PARAMETER, "a malformed server_name")
            return name.decode("ascii").lower().rstrip(".")
        at += 3 + size
    return ""


def _protocols(data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> tuple[bytes, ...]:
    protocols: list[bytes] = []
    at += 2
    while at < end:
        protocols.append(_vector(data, at + 1, end, data[at]))
        at += 1 + data[at]
    return tuple(protocols)


def _takes_ecdsa(data: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bool:
    at += 2
    while at + 2 <= end:
        if data[at + 1] == _ECDSA:
            return True
        at += 2
    return False
