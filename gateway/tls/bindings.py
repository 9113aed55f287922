"""Every call into OpenSSL for which pyOpenSSL has no public method, or a slow one.

``OpenSSL.SSL.Connection`` is made and configured by its public methods; what it reads and writes
goes through the bindings beneath it, because early data has no public method at all and ``recv``
and ``bio_read`` allocate a buffer and raise an exception for each "nothing more now". The names
here are private to two libraries, so :func:`missing` is asked once at start whether all are there.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from OpenSSL import SSL
from OpenSSL._util import ffi, lib

CHUNK: Final = 65_536
"""Octets that one call takes out of a BIO at most; a record holds 16,384 (RFC 8446 section 5.1)."""

SSL_OP_NO_ANTI_REPLAY: Final = 1 << 24
"""OpenSSL's own replay protection needs a session cache that workers do not share; ours does not
(SSL_CTX_set_options(3))."""

SSL_OP_PRIORITIZE_CHACHA: Final = 1 << 21
SSL_OP_CIPHER_SERVER_PREFERENCE: Final = 1 << 22

_EARLY_DATA_SUCCESS: Final = 1
_EARLY_DATA_FINISH: Final = 2

_NEEDED: Final = (
    "BIO_new",
    "BIO_s_mem",
    "BIO_read",
    "BIO_write",
    "BIO_get_mem_data",
    "SSL_set_bio",
    "SSL_do_handshake",
    "SSL_read",
    "SSL_write",
    "SSL_shutdown",
    "SSL_get_error",
    "SSL_session_reused",
    "SSL_get_verify_result",
    "X509_verify_cert_error_string",
    "ERR_clear_error",
    "ERR_get_error",
    "ERR_reason_error_string",
    "SSL_set_mode",
    "SSL_MODE_RELEASE_BUFFERS",
    "SSL_get0_param",
    "X509_VERIFY_PARAM_set1_host",
    "X509_VERIFY_PARAM_set1_ip",
    "X509_VERIFY_PARAM_set_hostflags",
    "SSL_ERROR_WANT_READ",
    "SSL_ERROR_ZERO_RETURN",
    "SSL_OP_NO_RENEGOTIATION",
    "i2d_SSL_SESSION",
    "d2i_SSL_SESSION",
)
_NEEDED_FOR_EARLY_DATA: Final = [
    "SSL_CTX_set_max_early_data",
    "SSL_read_early_data",
    "SSL_write_early_data",
]

# One buffer for all sessions of the process: what is taken out of it is copied at once.
_buffer: Any = ffi.new("unsigned char[]", CHUNK)
_view: Any = ffi.buffer(_buffer, CHUNK)
_size: Any = ffi.new("size_t *")
_pointer: Any = ffi.new("char **")


def load() -> None:
    """Do nothing: importing this module has loaded OpenSSL."""


def missing(early_data: bool) -> list[str]:
    """The names that the installed bindings lack; empty means that all will work."""
    names = [*_NEEDED, *(_NEEDED_FOR_EARLY_DATA if early_data else ())]
    return [name for name in names if not hasattr(lib, name)]


def reasons() -> str:
    """Why the last call failed, in OpenSSL's words; empties its queue of errors."""
    texts = []
    while code := lib.ERR_get_error():
        reason = lib.ERR_reason_error_string(code)
        if reason != ffi.NULL:
            texts.append(ffi.string(reason).decode("ascii", "replace"))
    return "; ".join(texts[:3])


def allow_early_data(context: SSL.Context, octets: int) -> None:
    """Let tickets of ``context`` permit so many octets of early data, without OpenSSL's replay
    protection."""
    lib.SSL_CTX_set_max_early_data(context._context, octets)
    context.set_options(SSL_OP_NO_ANTI_REPLAY)


def copy_session(session: SSL.Session) -> SSL.Session:
    """The same session for later. OpenSSL makes the one of a connection that ends without a
    close_notify unfit for resumption (RFC 2246 asked for it, TLS 1.3 does not)."""
    raw = session._session
    out = ffi.new("unsigned char[]", lib.i2d_SSL_SESSION(raw, ffi.NULL))
    lib.i2d_SSL_SESSION(raw, ffi.new("unsigned char **", out))
    copied = lib.d2i_SSL_SESSION(ffi.NULL, ffi.new("const unsigned char **", out), len(out))
    if copied == ffi.NULL:
        reasons()
        return session
    copy = SSL.Session.__new__(SSL.Session)
    copy._session = ffi.gc(copied, lib.SSL_SESSION_free)
    copy._context = session._context
    return copy


class Pipe:
    """The BIOs of one connection and what is done through them.

    A method that reads or shakes hands gives None or False when OpenSSL wants more input first.
    """

    __slots__ = ("_connection", "_in", "_out", "_ssl", "ended", "failed")

    def __init__(self, connection: SSL.Connection) -> None:
        self._connection = connection
        self._ssl = connection._ssl
        self._in = connection._into_ssl
        self._out = connection._from_ssl
        self.ended = False
        self.failed = False
        lib.SSL_set_mode(self._ssl, lib.SSL_MODE_RELEASE_BUFFERS)

    def feed(self, ciphertext: bytes | memoryview) -> None:
        """Give it what the peer sent."""
        if ciphertext:
            lib.BIO_write(self._in, ffi.from_buffer(ciphertext), len(ciphertext))

    def take(self) -> bytes:
        """What is to be sent to the peer, all of it."""
        n = lib.BIO_read(self._out, _buffer, CHUNK)
        if n <= 0:
            return b""
        octets: bytes = _view[:n]
        if n < CHUNK:
            return octets
        parts = [octets]
        while (n := lib.BIO_read(self._out, _buffer, CHUNK)) > 0:
            parts.append(_view[:n])
        return b"".join(parts)

    def read(self) -> bytes | None:
        """Plaintext, at most a record's; None if there is none now (``ended``: and never will)."""
        n = lib.SSL_read(self._ssl, _buffer, CHUNK)
        if n > 0:
            octets: bytes = _view[:n]
            return octets
        self._wants_more(n)
        return None

    def has_more(self) -> bool:
        """Whether input waits that no read has looked at; a read takes whole records."""
        return bool(lib.BIO_get_mem_data(self._in, _pointer))

    def read_early(self) -> tuple[bytes, bool] | None:
        """A piece of early data, and whether it ended; None: more input is needed first."""
        _size[0] = 0
        result = lib.SSL_read_early_data(self._ssl, _buffer, CHUNK, _size)
        if result == _EARLY_DATA_SUCCESS:
            return _view[: _size[0]], False
        if result == _EARLY_DATA_FINISH:
            return b"", True
        self._wants_more(-1)
        return None

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is complete."""
        n = lib.SSL_do_handshake(self._ssl)
        if n == 1:
            return True
        self._wants_more(n)
        return False

    def write(self, plaintext: bytes | bytearray) -> None:
        """Seal all of ``plaintext``; memory takes any amount."""
        done = 0
        size = len(plaintext)
        view = ffi.from_buffer(plaintext)
        while done < size:
            # Partial writes are on: each call seals one record.
            n = lib.SSL_write(self._ssl, view + done if done else view, size - done)
            if n <= 0:
                self._wants_more(n)
                return
            done += n

    def write_early(self, plaintext: bytes | bytearray) -> None:
        """As :meth:`write`, from a server that has not seen the client's Finished yet
        (RFC 8446 section 4.4.4), or from a client as early data."""
        view = ffi.from_buffer(plaintext)
        done = 0
        size = len(plaintext)
        while done < size:
            _size[0] = 0
            if not lib.SSL_write_early_data(self._ssl, view + done, size - done, _size):
                self._wants_more(-1)
                return
            done += _size[0]

    def say_goodbye(self) -> None:
        """Seal a close_notify."""
        lib.SSL_shutdown(self._ssl)
        lib.ERR_clear_error()

    def reused(self) -> bool:
        """Whether the session was resumed."""
        return bool(lib.SSL_session_reused(self._ssl))

    def verify_error(self) -> str:
        """Why the peer's certificate did not verify; empty if it did, or was not asked for."""
        code = lib.SSL_get_verify_result(self._ssl)
        if code == 0:
            return ""
        return str(ffi.string(lib.X509_verify_cert_error_string(code)).decode())

    def expect_name(self, host: str) -> None:
        """The peer's certificate must be for this host name or IP address (RFC 6125)."""
        param = lib.SSL_get0_param(self._ssl)
        try:
            packed = ipaddress.ip_address(host).packed
        except ValueError:
            lib.X509_VERIFY_PARAM_set_hostflags(param, lib.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)
            name = host.encode("idna") if not host.isascii() else host.encode()
            lib.X509_VERIFY_PARAM_set1_host(param, name, len(name))
        else:
            lib.X509_VERIFY_PARAM_set1_ip(param, packed, len(packed))

    def renew_memory(self) -> None:
        """Put small BIOs in place of those that grew, if nothing is in them."""
        if self.has_more() or lib.BIO_get_mem_data(self._out, _pointer):
            return
        incoming, outgoing = lib.BIO_new(lib.BIO_s_mem()), lib.BIO_new(lib.BIO_s_mem())
        lib.SSL_set_bio(self._ssl, incoming, outgoing)
        # The old ones are gone: the connection's own methods must not reach them.
        self._in = self._connection._into_ssl = incoming
        self._out = self._connection._from_ssl = outgoing

    def _wants_more(self, result: int) -> None:
        """Return if a call only wants input; else note how the session ended."""
        error = lib.SSL_get_error(self._ssl, result)
        if error == lib.SSL_ERROR_WANT_READ:
            return
        if error == lib.SSL_ERROR_ZERO_RETURN:
            self.ended = True
            return
        self.failed = True
