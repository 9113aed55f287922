"""How a path reads to a backend that normalizes it (RFC 3986 section 6.2.2).

Routes are matched on this reading, so that nobody reaches a cluster, or gets around a route, by
writing the same path in another way. The request itself is forwarded as it came. Done here:

- percent-encoded unreserved characters are decoded, other encodings are written in capitals;
- encoded slashes, backslashes and encoded backslashes count as slashes, since there are backends
  to which they are;
- empty segments are left out, as nginx does it, and dot segments removed (section 5.2.4).

Nothing is decoded twice.
"""

from __future__ import annotations

from typing import Final

_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)
_SLASHES: Final = frozenset(b"/\\")
_HEX: Final = frozenset(b"0123456789ABCDEFabcdef")


def normalize(path: bytes) -> bytes:
    """The normal reading of a path without query; the same object if it is that already."""
    if b"%" not in path and b"//" not in path and b"/." not in path and b"\\" not in path:
        return path
    if path[:1] != b"/":
        return path
    decoded = _decode(path) if b"%" in path else path
    segments: list[bytes] = []
    parts = decoded.replace(b"\\", b"/").split(b"/")[1:]
    for part in parts:
        if part == b"..":
            if segments:
                segments.pop()
        elif part not in (b"", b"."):
            segments.append(part)
    normal = b"/" + b"/".join(segments)
    if segments and parts[-1] in (b"", b".", b".."):
        normal += b"/"
    return path if normal == path else normal


def _decode(path: bytes) -> bytes:
    out = bytearray()
    start = 0
    at = path.find(b"%")
    while at >= 0:
        out += path[start:at]
        pair = path[at + 1 : at + 3]
        start = at + 3
        if len(pair) < 2 or pair[0] not in _HEX or pair[1] not in _HEX:
            # No encoding at all: it stands for itself.
            out += b"%"
            start = at + 1
        else:
            octet = int(pair, 16)
            if octet in _SLASHES:
                out += b"/"
            elif octet in _UNRESERVED:
                out.append(octet)
            else:
                out += b"%" + pair.upper()
        at = path.find(b"%", start)
    return bytes(out + path[start:])
