"""The heads of messages: what every level above the codec reads of a request or a response.

A head is made once by :mod:`gateway.wire.fields` from a decoded header block and never changes
afterwards. The HPACK decoder hands out one block object for equal bytes while its table stands
still, so one head may serve many requests of a connection: whatever is derived from a head alone
(the route, the fields to forward) may be kept in its ``memo``.
"""

from __future__ import annotations

from typing import Any

Field = tuple[bytes, bytes]
"""One header field, name in lower case. Shared with the HPACK tables: never changed."""

Fields = tuple[Field, ...]


class RequestHead:
    """A validated request head (RFC 9113 section 8.3.1, RFC 9110).

    ``content_length`` is -1 when the field is absent. ``protocol`` is the ``:protocol`` of an
    extended CONNECT (RFC 8441), else None. ``grpc_timeout_s`` is in seconds, None when absent.
    """

    __slots__ = (
        "authority",
        "content_length",
        "fields",
        "grpc_timeout_s",
        "is_grpc",
        "memo",
        "method",
        "path",
        "protocol",
        "scheme",
    )

    def __init__(
        self,
        method: bytes,
        scheme: bytes,
        authority: bytes,
        path: bytes,
        fields: Fields,
        *,
        protocol: bytes | None = None,
        content_length: int = -1,
        is_grpc: bool = False,
        grpc_timeout_s: float | None = None,
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.path = path
        self.fields = fields
        self.protocol = protocol
        self.content_length = content_length
        self.is_grpc = is_grpc
        self.grpc_timeout_s = grpc_timeout_s
        self.memo: Any = None

    def with_protocol(self, protocol: bytes | None) -> RequestHead:
        """The same request as one that asks for an upgrade to ``protocol``, or for none."""
        return RequestHead(
            self.method,
            self.scheme,
            self.authority,
            self.path,
            self.fields,
            protocol=protocol,
            content_length=self.content_length,
            is_grpc=self.is_grpc,
            grpc_timeout_s=self.grpc_timeout_s,
        )

    def get(self, name: bytes) -> bytes | None:
        """The value of the first field called ``name`` (lower case), or None."""
        for field in self.fields:
            if field[0] == name:
                return field[1]
        return None

    def __repr__(self) -> str:
        return f"<RequestHead {self.method!r} {self.authority!r} {self.path!r}>"


class ResponseHead:
    """A validated response head.

    ``fields`` leaves out ``:status``; ``content_length`` is -1 if absent.
    """

    __slots__ = ("content_length", "fields", "memo", "status")

    def __init__(self, status: int, fields: Fields, *, content_length: int = -1) -> None:
        self.status = status
        self.fields = fields
        self.content_length = content_length
        self.memo: Any = None

    def get(self, name: bytes) -> bytes | None:
        """The value of the first field called ``name`` (lower case), or None."""
        for field in self.fields:
            if field[0] == name:
                return field[1]
        return None

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status}>"
