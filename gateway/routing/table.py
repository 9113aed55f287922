"""The routes of a configuration, made ready to be matched.

The first route that matches wins, so a table is a list to be walked. What can be known from the
path alone is known once: the routes that a path can still reach, in their order, are remembered
for each path that a configured route names in full, and for a bounded number of paths that
requests bring. A gRPC method is such a path, so a call costs one look-up and not a walk. What
remains to be tested for a request (authority, method, fields) are comparisons of bytes.

Paths are compared in their normal reading (:mod:`gateway.routing.paths`), with the query cut off;
authorities without regard to case (RFC 9110 section 4.2.3), methods with regard to it. A path is
normalized when it is met first, and what it matched is remembered for the path as it was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.config import Route
from gateway.head import Field, RequestHead
from gateway.routing.paths import normalize

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

_MAX_REMEMBERED: int = cython.declare(cython.Py_ssize_t, 1024)
"""Paths of requests whose routes are remembered; when they are so many, all are forgotten."""

_MAX_REMEMBERED_PATH: int = cython.declare(cython.Py_ssize_t, 256)
"""Bytes of a path that is remembered: a client can't make the table hold more than 256 KiB."""


@cython.final
@cython.cclass
class _Rule:
    """One route, with its match as the bytes of a request.

    ``only_path`` is true when nothing but the path is left to test.
    """

    if cython.compiled:
        route: Route = cython.declare(object)
        only_path: bool = cython.declare(cython.bint)
        path: bytes | None = cython.declare(bytes, visibility="readonly")
        _prefix: bytes = cython.declare(bytes)
        _method: bytes | None = cython.declare(bytes)
        _fields: tuple[Field, ...] = cython.declare(tuple)
        _authority: bytes | None = cython.declare(bytes)
        _has_port: bool = cython.declare(cython.bint)
        _is_suffix: bool = cython.declare(cython.bint)
    else:
        __slots__ = (
            "_authority",
            "_fields",
            "_has_port",
            "_is_suffix",
            "_method",
            "_prefix",
            "only_path",
            "path",
            "route",
        )

    def __init__(self, route: Route) -> None:
        match = route.match
        self.route = route
        self.path = None if match.path is None else normalize(match.path.encode())
        self._prefix = _normal_prefix((match.path_prefix or "").encode())
        self._method = None if match.method is None else match.method.encode()
        fields = [(name.lower().encode(), value.encode()) for name, value in match.headers.items()]
        self._fields = tuple(fields)
        self._authority = None
        self._has_port = self._is_suffix = False
        if match.authority is not None:
            authority = match.authority.encode().lower()
            self._is_suffix = authority.startswith(b"*.")
            self._authority = authority[1:] if self._is_suffix else authority
            self._has_port = _without_port(authority) != authority
        self.only_path = self._authority is None and self._method is None and not self._fields

    @cython.cfunc
    def takes_path(self, path: bytes) -> cython.bint:
        if self.path is not None:
            return path == self.path
        return path.startswith(self._prefix)

    @cython.cfunc
    def takes(self, head: RequestHead) -> cython.bint:
        """Whether the rest of the head matches; the path is known to."""
        if self._method is not None and head.method != self._method:
            return False
        if self._authority is not None and not self._takes_authority(head.authority):
            return False
        if self._fields:
            fields = head.fields
            for field in self._fields:
                if field not in fields:
                    return False
        return True

    @cython.cfunc
    def _takes_authority(self, authority: bytes) -> cython.bint:
        wanted = self._authority
        assert wanted is not None
        authority = authority.lower()
        if not self._has_port:
            authority = _without_port(authority)
        if self._is_suffix:
            # The name before the suffix can't be empty.
            return len(authority) > len(wanted) and authority.endswith(wanted)
        return authority == wanted


@cython.final
@cython.cclass
class RouteTable:
    """Routes in the order in which they are tried."""

    if cython.compiled:
        _by_path: dict[bytes, tuple[_Rule, ...]] = cython.declare(dict)
        _remembered: dict[bytes, tuple[_Rule, ...]] = cython.declare(dict)
        _rules: tuple[_Rule, ...] = cython.declare(tuple)
    else:
        __slots__ = ("_by_path", "_remembered", "_rules")

    def __init__(self, routes: Sequence[Route]) -> None:
        self._rules = tuple([_Rule(route) for route in routes])
        self._remembered = {}
        self._by_path = {}
        rule: _Rule
        for rule in self._rules:
            if rule.path is not None:
                self._by_path[rule.path] = self._reachable(rule.path)

    def match(self, head: RequestHead) -> Route | None:
        """The first route that takes the request, None when none does."""
        path: bytes = head.path
        query: cython.Py_ssize_t = path.find(b"?")
        if query >= 0:
            path = path[:query]
        rules = self._by_path.get(path)
        if rules is None:
            rules = self._remembered.get(path)
            if rules is None:
                rules = self._reachable(path)
                self._remember(path, rules)
        rule: _Rule
        for rule in rules:
            if rule.only_path or rule.takes(head):
                return rule.route
        return None

    @property
    def remembered(self) -> int:
        """How many paths of requests are remembered."""
        return len(self._remembered)

    @cython.cfunc
    def _reachable(self, path: bytes) -> tuple[_Rule, ...]:
        """The rules whose path condition holds, up to the first that asks for nothing else."""
        found = []
        path = normalize(path)
        rule: _Rule
        for rule in self._rules:
            if rule.takes_path(path):
                found.append(rule)
                if rule.only_path:
                    break
        return tuple(found)

    @cython.cfunc
    def _remember(self, path: bytes, rules: tuple[_Rule, ...]) -> None:
        if len(path) > _MAX_REMEMBERED_PATH:
            return
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[path] = rules

    def __repr__(self) -> str:
        return f"<RouteTable of {len(self._rules)} routes>"


@cython.cfunc
def _normal_prefix(prefix: bytes) -> bytes:
    """A prefix may end inside a segment, so its last one is left as it is."""
    at: cython.Py_ssize_t = prefix.rfind(b"/") + 1
    normal: bytes = normalize(prefix[:at])
    return normal + prefix[at:]


@cython.cfunc
def _without_port(authority: bytes) -> bytes:
    colon: cython.Py_ssize_t = authority.rfind(b":")
    if colon < 0:
        return authority
    port = authority[colon + 1 :]
    if port and not port.isdigit():  # the last colon of "[::1]" is no port's: "1]" follows it
        return authority
    return authority[:colon]
