"""The fields and messages that the operations work on."""

from __future__ import annotations

from gateway.head import Fields

BROWSER: Fields = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":authority", b"www.example.org"),
    (b":path", b"/index.html"),
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (b"accept-language", b"en-US,en;q=0.5"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"x-request-id", b"3fa85f64-5717-4562-b3fc-2c963f66afa6"),
)
"""Nine fields."""

RESPONSE: Fields = (
    (b":status", b"200"),
    (b"server", b"nghttpd nghttp2/1.52.0"),
    (b"cache-control", b"max-age=3600"),
    (b"date", b"Mon, 01 Dec 2025 04:11:00 GMT"),
    (b"content-length", b"1024"),
    (b"last-modified", b"Mon, 01 Dec 2025 04:00:00 GMT"),
)

MANY = 512
"""More different ones than any cache holds."""


def numbered(index: int) -> Fields:
    """Like :data:`BROWSER` with a path and an id of its own."""
    changed = {
        b":path": b"/items/%08d" % index,
        b"x-request-id": b"3fa85f64-5717-4562-b3fc-%012d" % index,
    }
    return tuple((name, changed.get(name, value)) for name, value in BROWSER)
