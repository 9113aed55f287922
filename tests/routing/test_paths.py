"""The normal reading of a path."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import config
from gateway.head import RequestHead
from gateway.routing import RouteTable
from gateway.routing.paths import normalize


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        (b"/", b"/"),
        (b"/a/b", b"/a/b"),
        (b"/a/", b"/a/"),
        (b"/a/./b", b"/a/b"),
        (b"/a/../b", b"/b"),
        (b"/a/b/..", b"/a/"),
        (b"/a/b/.", b"/a/b/"),
        (b"/../../x", b"/x"),
        (b"/..", b"/"),
        (b"//a///b", b"/a/b"),
        (b"/%61dmin", b"/admin"),
        (b"/%7euser", b"/~user"),
        (b"/a%2fb", b"/a/b"),
        (b"/a%2Fb", b"/a/b"),
        (b"/x%2f..%2fadmin", b"/admin"),
        (b"/x/%2e%2E/admin", b"/admin"),
        (b"/x/.%2e/admin", b"/admin"),
        (b"/x\\..\\admin", b"/admin"),
        (b"/x%5c..%5cadmin", b"/admin"),
        (b"/a%20b", b"/a%20b"),
        (b"/a%c3%a9", b"/a%C3%A9"),
        (b"/a%252e", b"/a%252e"),
        (b"/a%2", b"/a%2"),
        (b"/a%zz", b"/a%zz"),
        (b"/.../a", b"/.../a"),
        (b"/a..b/.c", b"/a..b/.c"),
        (b"*", b"*"),
        (b"", b""),
    ],
)
def test_reading(path: bytes, normal: bytes) -> None:
    assert normalize(path) == normal


def test_a_normal_path_is_the_same_object() -> None:
    path = b"/inference.GRPCInferenceService/ModelInfer"
    assert normalize(path) is path


PATHS = st.lists(
    st.sampled_from(
        ["/", "a", ".", "..", "%2e", "%2F", "%5c", "\\", "%61", "%20", "%", "b", "%25"]
    ),
    max_size=12,
).map(lambda parts: ("/" + "".join(parts)).encode())


@given(PATHS)
def test_normal_is_normal(path: bytes) -> None:
    normal = normalize(path)
    assert normalize(normal) == normal or b"%" in normal
    segments = normal.split(b"/")
    assert b"." not in segments
    assert b".." not in segments
    assert b"//" not in normal


@given(PATHS)
def test_a_backend_that_decodes_first_reads_the_same(path: bytes) -> None:
    """Decoding everything, then removing dots: the reading of a simple server."""
    if b"%" in normalize(path):
        return  # an encoding that is left alone, or none
    text = unquote(path.decode()).replace("\\", "/")
    kept: list[str] = []
    for part in text.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    assert normalize(path).strip(b"/") == "/".join(kept).encode()


@pytest.mark.parametrize(
    "path", [b"/admin/x", b"/x/../admin/x", b"/%61dmin/x", b"/x%2f..%2fadmin/x", b"//admin/x"]
)
def test_routes_match_the_normal_reading(path: bytes) -> None:
    table = RouteTable(
        (
            config.Route(match=config.Match(path_prefix="/admin/"), cluster="admin"),
            config.Route(cluster="rest"),
        )
    )
    for _ in range(2):  # met first, and remembered
        route = table.match(RequestHead(b"GET", b"http", b"a", path + b"?q=/../", ()))
        assert route is not None
        assert route.cluster == "admin"


def test_what_a_route_names_is_normalized_too() -> None:
    table = RouteTable((config.Route(match=config.Match(path="/%61/../b%2Fc"), cluster="one"),))
    assert table.match(RequestHead(b"GET", b"http", b"a", b"/b/c", ())) is not None
