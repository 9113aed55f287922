"""Routing: the first route that matches, whatever the table remembers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Match, Route
from gateway.head import RequestHead
from gateway.routing import RouteTable


def head(path="/", *, authority="example.org", method="GET", fields=()):
    return RequestHead(
        method.encode(),
        b"http",
        authority.encode(),
        path.encode(),
        tuple((name.encode(), value.encode()) for name, value in fields),
    )


def table(*matches):
    """Routes to clusters ``0``, ``1``, ..."""
    return RouteTable(
        [Route(match=Match(**match), cluster=str(i)) for i, match in enumerate(matches)]
    )


def cluster_of(routes, request):
    route = routes.match(request)
    return None if route is None else route.cluster


def takes(request, **match):
    return table(match).match(request) is not None


def test_the_route_of_the_configuration_itself_is_given_back():
    route = Route(cluster="x")
    assert RouteTable([route]).match(head()) is route


def test_no_route():
    assert RouteTable([]).match(head()) is None
    assert table({"path": "/a"}).match(head("/b")) is None


def test_the_first_that_matches_wins():
    prefix, exact = {"path_prefix": "/a"}, {"path": "/a/b"}
    assert cluster_of(table(prefix, exact), head("/a/b")) == "0"
    assert cluster_of(table(exact, prefix), head("/a/b")) == "0"
    assert cluster_of(table(exact, prefix), head("/a/c")) == "1"
    assert cluster_of(table({"path": "/a", "method": "PUT"}, {}, exact), head("/a")) == "1"
    assert cluster_of(table(exact, exact), head("/a/b")) == "0"


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [("/a", True), ("/a?q", True), ("/a?", True), ("/a/", False), ("/A", False), ("/", False)],
)
def test_a_path_is_compared_without_the_query(path, is_taken):
    assert takes(head(path), path="/a") is is_taken


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [("/a/", True), ("/a/b?q", True), ("/a", False), ("/?/a/", False), ("/b/a/", False)],
)
def test_a_prefix(path, is_taken):
    assert takes(head(path), path_prefix="/a/") is is_taken


def test_a_prefix_does_not_reach_into_the_query():
    assert not takes(head("/a?b"), path_prefix="/a?")


@pytest.mark.parametrize("path", ["", "*"])
def test_requests_without_a_path_of_their_own(path):
    assert takes(head(path, method="OPTIONS"))
    assert not takes(head(path, method="OPTIONS"), path_prefix="/")
    assert takes(head("*", method="OPTIONS"), path="*")


@pytest.mark.parametrize(
    ("pattern", "authority", "is_taken"),
    [
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org:8080", True),
        ("Example.ORG", "example.org", True),
        ("example.org", "example.org:", True),
        ("example.org", "a.example.org", False),
        ("example.org", "example.org.evil", False),
        ("example.org:80", "example.org:80", True),
        ("example.org:80", "example.org:81", False),
        ("example.org:80", "example.org", False),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "a.b.Example.org:80", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", ".example.org", False),
        ("*.example.org", "aexample.org", False),
        ("*.example.org:80", "a.example.org:80", True),
        ("*.example.org:80", "a.example.org:81", False),
        ("*.example.org:80", "a.example.org", False),
        ("[::1]", "[::1]", True),
        ("[::1]", "[::1]:80", True),
        ("[::1]:80", "[::1]:80", True),
        ("[::1]:80", "[::1]", False),
        ("[::1]", "[::2]", False),
        ("example.org", "", False),
        ("example.org", "example.org:x", False),
    ],
)
def test_authorities(pattern, authority, is_taken):
    assert takes(head(authority=authority), authority=pattern) is is_taken


def test_methods_have_a_case():
    assert takes(head(method="POST"), method="POST")
    assert not takes(head(method="post"), method="POST")


def test_fields_must_all_be_there():
    match = {"X-A": "1", "x-b": "2"}
    assert takes(head(fields=[("x-b", "2"), ("x-c", "3"), ("x-a", "1")]), headers=match)
    assert takes(head(fields=[("x-a", "0"), ("x-a", "1"), ("x-b", "2")]), headers=match)
    assert not takes(head(fields=[("x-a", "1")]), headers=match)
    assert not takes(head(fields=[("x-a", "1"), ("x-b", "3")]), headers=match)


def test_a_remembered_path_still_asks_for_the_rest_of_the_head():
    routes = table({"method": "PUT"}, {"headers": {"a": "1"}}, {"authority": "b.org"}, {})
    requests = [
        (head(method="PUT"), "0"),
        (head(fields=[("a", "1")]), "1"),
        (head(authority="b.org"), "2"),
        (head(), "3"),
    ]
    for request, cluster in requests * 2:
        assert cluster_of(routes, request) == cluster
    assert routes.remembered == 1


def test_what_is_remembered_is_bounded():
    routes = table({"path": "/known"}, {"path_prefix": "/a"})
    for number in range(5000):
        assert cluster_of(routes, head(f"/a{number}?q={number}")) == "1"
        assert routes.remembered <= 1024
    before = routes.remembered
    assert cluster_of(routes, head("/a" * 1000)) == "1"
    assert cluster_of(routes, head("/known")) == "0"
    assert routes.remembered == before


# A table against a walk over the list that says what the documentation says.

_paths = st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b/c", "/b"])
_names = st.sampled_from(["a.org", "b.org"])
_methods = st.sampled_from(["GET", "PUT"])
_values = st.sampled_from(["1", "2"])
_matches = st.fixed_dictionaries(
    {},
    optional={
        "authority": _names,
        "method": _methods,
        "headers": st.dictionaries(st.sampled_from(["x", "y"]), _values),
    },
).flatmap(
    lambda match: st.sampled_from([{}, {"path": None}, {"path_prefix": None}]).flatmap(
        lambda keys: _paths.map(lambda path: match | dict.fromkeys(keys, path))
    )
)
_heads = st.builds(
    head,
    st.builds(lambda path, query: path + query, _paths, st.sampled_from(["", "?", "?/a"])),
    authority=_names,
    method=_methods,
    fields=st.dictionaries(st.sampled_from(["x", "y", "z"]), _values).map(lambda d: [*d.items()]),
)


def walk(matches, request):
    path = request.path.decode().partition("?")[0]
    for number, match in enumerate(matches):
        if (
            match.get("path", path) == path
            and path.startswith(match.get("path_prefix", ""))
            and match.get("authority", request.authority.decode()) == request.authority.decode()
            and match.get("method", request.method.decode()) == request.method.decode()
            and all(
                request.get(name.encode()) == value.encode()
                for name, value in match.get("headers", {}).items()
            )
        ):
            return str(number)
    return None


@given(st.lists(_matches, max_size=6), st.lists(_heads, min_size=1, max_size=6))
def test_a_table_finds_what_a_walk_finds(matches, requests):
    routes = table(*matches)
    for request in requests:
        assert cluster_of(routes, request) == walk(matches, request)
