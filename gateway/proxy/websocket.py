"""WebSocket through the gateway: what differs between HTTP/1.1 and HTTP/2.

In HTTP/1.1 a client asks with ``upgrade: websocket`` and a key, and the server proves with
``sec-websocket-accept`` that it read the key (RFC 6455 section 4). In HTTP/2 the client sends an
extended CONNECT without a key and is answered 200 (RFC 8441 section 5). So for a client of HTTP/2
the gateway makes the key and checks the proof; between two HTTP/1.1 connections both just pass.
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha1
from typing import Final

from gateway.head import Field, Fields, ResponseHead

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_OK: Final[Field] = (b":status", b"200")


def new_key() -> bytes:
    """A ``sec-websocket-key``: 16 random octets in base64."""
    return b64encode(os.urandom(16))


def accepts(head: ResponseHead, key: bytes) -> bool:
    """Whether the response proves that the server read ``key``."""
    proof = b64encode(sha1(key + _GUID, usedforsecurity=False).digest())
    return head.get(b"sec-websocket-accept") == proof


def accepted_fields(fields: Fields) -> Fields:
    """What a client of HTTP/2 gets in place of the fields of status 101."""
    return (_OK, *(field for field in fields[1:] if field[0] != b"sec-websocket-accept"))
