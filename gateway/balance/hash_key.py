"""The key of a request for consistent hashing, as ``hash_on`` names it.

===================  =====================================================================
``header:NAME``      the first field of that name
``metadata:NAME``    the same for gRPC metadata; of a ``-bin`` value the base64 padding does not
                     count, which senders may leave out (gRPC over HTTP/2, "Custom-Metadata")
``cookie:NAME``      the cookie of that name, wherever it stands (RFC 6265 section 5.4; HTTP/2
                     splits the field, RFC 9113 section 8.2.3)
``query:NAME``       the first query parameter of that name, percent-decoded
``path``             the path without its query
``authority``        ``:authority`` in lower case
``client``           the client's address, without the port
===================  =====================================================================

An empty value counts as absent: all who send one would share one endpoint.
"""

from __future__ import annotations

from string import ascii_letters, digits
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from gateway.balance.request import PickRequest
from gateway.head import RequestHead

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

_HEADER: int = cython.declare(cython.int, 0)
_METADATA_BIN: int = cython.declare(cython.int, 1)
_COOKIE: int = cython.declare(cython.int, 2)
_QUERY: int = cython.declare(cython.int, 3)
_PATH: int = cython.declare(cython.int, 4)
_AUTHORITY: int = cython.declare(cython.int, 5)
_CLIENT: int = cython.declare(cython.int, 6)

_FIELD_NAME = frozenset("!#$%&'*+-.^_`|~" + digits + ascii_letters)
"""A token, RFC 9110 section 5.6.2."""

_METADATA_NAME = frozenset("_-." + digits + ascii_letters)
"""gRPC over HTTP/2, "Header-Name"."""


@cython.final
@cython.cclass
class HashKey:
    """Reads the key that ``hash_on`` names. Raises ValueError if ``hash_on`` has no such form."""

    if cython.compiled:
        hash_on: str = cython.declare(str, visibility="readonly")
        _kind: int = cython.declare(cython.int)
        _name: bytes = cython.declare(bytes)
    else:
        __slots__ = ("_kind", "_name", "hash_on")

    def __init__(self, hash_on: str) -> None:
        source, colon, name = hash_on.partition(":")
        self.hash_on = hash_on
        self._name = b""
        if not colon:
            if source == "path":
                self._kind = _PATH
            elif source == "authority":
                self._kind = _AUTHORITY
            elif source == "client":
                self._kind = _CLIENT
            else:
                raise ValueError(
                    f"{hash_on!r} is none of header:NAME, metadata:NAME, cookie:NAME, query:NAME, "
                    "path, authority, client"
                )
            return
        if source == "query":
            if not name:
                raise ValueError(f"{hash_on!r} names no query parameter")
            self._kind = _QUERY
            self._name = name.encode()
            return
        form = _METADATA_NAME if source == "metadata" else _FIELD_NAME
        if source not in ("header", "metadata", "cookie"):
            raise ValueError(
                f"{source!r} in {hash_on!r} is none of header, metadata, cookie, query"
            )
        if not name or not form.issuperset(name):
            raise ValueError(f"{name!r} in {hash_on!r} is not the name of a {source}")
        if source == "cookie":  # names of cookies are case-sensitive, those of fields are not
            self._kind = _COOKIE
            self._name = name.encode()
            return
        self._name = name.lower().encode()
        binary = source == "metadata" and self._name.endswith(b"-bin")
        self._kind = _METADATA_BIN if binary else _HEADER

    def read(self, request: PickRequest) -> bytes | None:
        """The key of ``request``, None if it has none."""
        kind: cython.int = self._kind
        value: bytes | None
        if kind == _CLIENT:
            value = request.client
        else:
            head: RequestHead = request.head
            if kind == _HEADER:
                value = _field(head.fields, self._name)
            elif kind == _PATH:
                value = head.path.partition(b"?")[0]
            elif kind == _AUTHORITY:
                value = head.authority.lower()
            elif kind == _METADATA_BIN:
                value = _field(head.fields, self._name)
                if value is not None:
                    value = value.rstrip(b"=")
            elif kind == _COOKIE:
                value = _cookie(head.fields, self._name)
            else:
                value = _parameter(head.path, self._name)
        return value or None

    def __repr__(self) -> str:
        return f"<HashKey {self.hash_on}>"


@cython.cfunc
def _field(fields: tuple, name: bytes) -> bytes | None:  # type: ignore[type-arg]
    field: tuple[bytes, bytes]
    for field in fields:
        if field[0] == name:
            return field[1]
    return None


@cython.cfunc
def _cookie(fields: tuple, name: bytes) -> bytes | None:  # type: ignore[type-arg]
    field: tuple[bytes, bytes]
    for field in fields:
        if field[0] == b"cookie":
            for pair in field[1].split(b";"):
                found, _, value = pair.partition(b"=")
                if found.strip(b" \t") == name:
                    return value.strip(b" \t")
    return None


@cython.cfunc
def _parameter(path: bytes, name: bytes) -> bytes | None:
    for pair in path.partition(b"?")[2].split(b"&"):
        found, _, value = pair.partition(b"=")
        if found == name or _decoded(found) == name:
            return _decoded(value)
    return None


@cython.cfunc
def _decoded(text: bytes) -> bytes:
    """``text`` of a query, decoded as a form is: two spellings of one value are one key."""
    if b"+" in text:
        text = text.replace(b"+", b" ")
    if b"%" in text:
        text = unquote_to_bytes(text)
    return text
