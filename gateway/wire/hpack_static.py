"""What HPACK needs that holds no state: the static table, credentials' names, two types.

Apart from :mod:`gateway.wire.hpack` because none of it gains from being compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.head import Fields

# fmt: off
STATIC_TABLE: Fields = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"),
    (b":path", b"/index.html"), (b":scheme", b"http"), (b":scheme", b"https"),
    (b":status", b"200"), (b":status", b"204"), (b":status", b"206"), (b":status", b"304"),
    (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""),
    (b"accept", b""), (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""),
    (b"authorization", b""), (b"cache-control", b""), (b"content-disposition", b""),
    (b"content-encoding", b""), (b"content-language", b""), (b"content-length", b""),
    (b"content-location", b""), (b"content-range", b""), (b"content-type", b""), (b"cookie", b""),
    (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""),
    (b"if-range", b""), (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""),
    (b"location", b""), (b"max-forwards", b""), (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""), (b"range", b""), (b"referer", b""), (b"refresh", b""),
    (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""),
    (b"vary", b""), (b"via", b""), (b"www-authenticate", b""),
)
# fmt: on
"""The first entry has the number 1."""

NEVER_INDEXED = frozenset(
    (b"authorization", b"proxy-authorization", b"cookie", b"set-cookie", b"x-api-key")
)
"""Names of credentials: always literals that no hop may index (RFC 7541 section 7.1.3)."""


class HpackError(Exception):
    """A header block that can't be decoded: COMPRESSION_ERROR, the table is lost with it."""


class SensitiveField(tuple[bytes, bytes]):
    """A (name, value) that was marked never-indexed: the encoder passes the mark on.

    RFC 7541 section 6.2.3. It equals and hashes like the plain tuple, so whoever copies fields
    must copy the object, not its two parts.
    """

    __slots__ = ()
