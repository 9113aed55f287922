"""Cross-origin requests: the answers that a browser asks for (Fetch standard, "CORS protocol").

A browser lets a page read a response of another origin only if the response says so, and asks
beforehand, with a preflight, whether an unusual request may be sent at all. The gateway answers the
preflight itself and adds the fields to every response of the route.
"""

from __future__ import annotations

from gateway.config import Cors
from gateway.head import Field, Fields, RequestHead

_VARY: Field = (b"vary", b"origin")
_CREDENTIALS: Field = (b"access-control-allow-credentials", b"true")


class CorsPolicy:
    """One route's ``cors`` table, made ready."""

    def __init__(self, cors: Cors) -> None:
        self._any = "*" in cors.allow_origins
        self._exact = frozenset(
            origin.encode() for origin in cors.allow_origins if "*" not in origin
        )
        self._suffixes: list[tuple[bytes, bytes]] = []
        for origin in cors.allow_origins:
            scheme, star, rest = origin.partition("://*.")
            if star:
                self._suffixes.append((f"{scheme}://".encode(), f".{rest}".encode()))
        self._credentials = cors.allow_credentials
        self._methods = ", ".join(cors.allow_methods).encode()
        self._reflect = "*" in cors.allow_headers
        self._headers = ", ".join(name for name in cors.allow_headers if name != "*").encode()
        self._expose = ", ".join(cors.expose_headers).encode()
        self._max_age = b"%d" % int(cors.max_age_s)

    def origin_fields(self, head: RequestHead) -> Fields:
        """What is added to every response to this request.

        ``vary`` is there whenever the answer depends on the origin, so that no cache serves one
        origin's answer to another.
        """
        fields: list[Field] = [] if self._any else [_VARY]
        origin = head.get(b"origin")
        if origin is None or not self._allows(origin):
            return tuple(fields)
        fields.append((b"access-control-allow-origin", b"*" if self._any else origin))
        if self._credentials:
            fields.append(_CREDENTIALS)
        if self._expose:
            fields.append((b"access-control-expose-headers", self._expose))
        return tuple(fields)

    def preflight(self, head: RequestHead) -> Fields | None:
        """The whole answer to a preflight; None for what is none.

        To an origin that is not allowed the answer says nothing, which the browser takes as a no.
        """
        if head.method != b"OPTIONS":
            return None
        origin = head.get(b"origin")
        if origin is None or head.get(b"access-control-request-method") is None:
            return None
        fields: list[Field] = [(b":status", b"204")]
        varies = b"origin, access-control-request-headers" if self._reflect else b"origin"
        fields.append((b"vary", varies))
        if not self._allows(origin):
            return tuple(fields)
        fields.append((b"access-control-allow-origin", b"*" if self._any else origin))
        if self._credentials:
            fields.append(_CREDENTIALS)
        fields.append((b"access-control-allow-methods", self._methods))
        wanted = head.get(b"access-control-request-headers") if self._reflect else self._headers
        if wanted:
            fields.append((b"access-control-allow-headers", wanted))
        fields.append((b"access-control-max-age", self._max_age))
        return tuple(fields)

    def _allows(self, origin: bytes) -> bool:
        if self._any or origin in self._exact:
            return True
        return any(
            origin.startswith(start)
            and origin.endswith(end)
            and len(origin) > len(start) + len(end)
            # A name, and no port or path that happens to end so.
            and not origin[len(start) : -len(end)].strip(_NAME)
            for start, end in self._suffixes
        )


_NAME = b"abcdefghijklmnopqrstuvwxyz0123456789-_."
