"""Which requests may be forwarded before the TLS handshake is complete."""

from __future__ import annotations

import pytest

from gateway.head import RequestHead
from gateway.proxy.downstream import _replay_safe
from gateway.wire.fields import parse_request

DEFAULT = ("GET", "HEAD")


def head(method: bytes, path: bytes = b"/", *fields: tuple[bytes, bytes]) -> RequestHead:
    pseudo = [(b":method", method), (b":scheme", b"https"), (b":authority", b"a"), (b":path", path)]
    return parse_request((*pseudo, *fields))


GRPC = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))


@pytest.mark.parametrize(
    ("request_head", "listed", "safe"),
    [
        (head(b"GET"), DEFAULT, True),
        (head(b"HEAD"), DEFAULT, True),
        (head(b"POST"), DEFAULT, False),
        (head(b"get"), DEFAULT, False),
        (head(b"PUT"), (*DEFAULT, "PUT"), True),
        (head(b"GET"), (), False),
        # Of gRPC it is the method that counts, not that all of them are POST.
        (head(b"POST", b"/a.B/Get", *GRPC), DEFAULT, False),
        (head(b"POST", b"/a.B/Get", *GRPC), ("POST",), False),
        (head(b"POST", b"/a.B/Get", *GRPC), ("/a.B/Get",), True),
        (head(b"POST", b"/a.B/Set", *GRPC), ("/a.B/Get",), False),
        # And a path is no method of HTTP.
        (head(b"POST", b"/a.B/Get"), ("/a.B/Get",), False),
        (head(b"GET").with_protocol(b"websocket"), DEFAULT, False),
    ],
)
def test_replay_safe(request_head: RequestHead, listed: tuple[str, ...], safe: bool):
    assert _replay_safe(request_head, listed) == safe
