"""The answers of the CORS protocol (Fetch standard)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import config
from gateway.head import Fields, RequestHead
from gateway.routing.cors import CorsPolicy

APP = b"https://app.example.org"


def policy(*origins: str, **settings: Any) -> CorsPolicy:
    return CorsPolicy(config.Cors(allow_origins=origins, **settings))


def head(*fields: tuple[bytes, bytes], method: bytes = b"GET") -> RequestHead:
    return RequestHead(method, b"http", b"a", b"/", fields)


def preflight(origin: bytes = APP, headers: bytes | None = None) -> RequestHead:
    fields: Fields = ((b"origin", origin), (b"access-control-request-method", b"POST"))
    if headers is not None:
        fields = (*fields, (b"access-control-request-headers", headers))
    return head(*fields, method=b"OPTIONS")


@pytest.mark.parametrize(
    ("allowed", "origin", "answer"),
    [
        ("https://app.example.org", APP, APP),
        ("https://app.example.org", b"http://app.example.org", None),
        ("https://app.example.org", b"https://app.example.org:8443", None),
        ("https://*.example.org", APP, APP),
        ("https://*.example.org", b"https://a.b.example.org", b"https://a.b.example.org"),
        ("https://*.example.org", b"https://example.org", None),
        ("https://*.example.org", b"https://evil-example.org", None),
        ("https://*.example.org", b"https://evil.org/.example.org", None),
        ("https://*.example.org", b"https://evil.org:1@x.example.org", None),
        ("*", b"https://anybody.test", b"*"),
        ("*", b"null", b"*"),
        ("https://app.example.org", b"null", None),
    ],
)
def test_origins(allowed: str, origin: bytes, answer: bytes | None) -> None:
    fields = dict(policy(allowed).origin_fields(head((b"origin", origin))))
    assert fields.get(b"access-control-allow-origin") == answer
    if answer is not None:
        assert b"grpc-status" in fields[b"access-control-expose-headers"]
    # Otherwise a cache could serve one origin's answer to another.
    assert (b"vary" in fields) == (allowed != "*")


def test_without_an_origin_there_is_only_vary() -> None:
    assert policy("https://a.test").origin_fields(head()) == ((b"vary", b"origin"),)
    assert policy("*").origin_fields(head()) == ()


def test_credentials() -> None:
    fields = policy("https://app.example.org", allow_credentials=True).origin_fields(
        head((b"origin", APP))
    )
    assert (b"access-control-allow-credentials", b"true") in fields


def test_a_preflight() -> None:
    fields = policy("https://app.example.org", max_age_s=60.0).preflight(
        preflight(headers=b"x-grpc-web,content-type")
    )
    assert fields is not None
    assert fields[0] == (b":status", b"204")
    answer = dict(fields)
    assert answer[b"access-control-allow-origin"] == APP
    assert b"POST" in answer[b"access-control-allow-methods"]
    assert answer[b"access-control-allow-headers"] == b"x-grpc-web,content-type"
    assert answer[b"access-control-max-age"] == b"60"
    assert b"access-control-request-headers" in answer[b"vary"]


def test_a_list_of_headers_is_said_whatever_is_asked() -> None:
    fields = policy("*", allow_headers=("x-a", "x-b")).preflight(preflight(headers=b"x-c"))
    assert (b"access-control-allow-headers", b"x-a, x-b") in (fields or ())


def test_a_preflight_of_a_stranger_is_told_nothing() -> None:
    fields = policy("https://app.example.org").preflight(preflight(b"https://evil.test"))
    assert fields is not None
    assert [name for name, _ in fields] == [b":status", b"vary"]


def test_what_is_no_preflight() -> None:
    one = policy("*")
    assert one.preflight(head((b"origin", APP))) is None
    assert one.preflight(head((b"origin", APP), method=b"OPTIONS")) is None
    assert (
        one.preflight(head((b"access-control-request-method", b"POST"), method=b"OPTIONS")) is None
    )
