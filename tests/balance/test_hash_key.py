"""The key that hash_on names."""

from __future__ import annotations

from urllib.parse import quote_from_bytes, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.balance import HashKey, PickRequest
from gateway.head import Field, RequestHead


def request(
    *fields: Field, path: bytes = b"/", authority: bytes = b"a", client: bytes = b"10.0.0.9"
) -> PickRequest:
    return PickRequest(RequestHead(b"POST", b"http", authority, path, fields), client)


FIELDS = (
    (b"x-session-id", b"s1"),
    (b"x-session-id", b"s2"),
    (b"x-empty", b""),
    (b"trace-bin", b"AAEC/w=="),
    (b"cookie", b"theme=dark; sid=abc"),
    (b"cookie", b"other=1;sid=second;  spaced = yes ; eq=a=b; none"),
)


@pytest.mark.parametrize(
    ("hash_on", "key"),
    [
        ("header:x-session-id", b"s1"),
        ("header:X-Session-ID", b"s1"),
        ("header:x-empty", None),
        ("header:x-none", None),
        ("header:cookie", b"theme=dark; sid=abc"),
        ("header:trace-bin", b"AAEC/w=="),
        ("metadata:x-session-id", b"s1"),
        ("metadata:trace-bin", b"AAEC/w"),
        ("metadata:none-bin", None),
        ("cookie:sid", b"abc"),
        ("cookie:other", b"1"),
        ("cookie:spaced", b"yes"),
        ("cookie:eq", b"a=b"),
        ("cookie:none", None),
        ("cookie:id", None),
        ("cookie:SID", None),
        ("path", b"/a/b"),
        ("query:user", b"7 8"),
        ("query:x y", b"z"),
        ("query:empty", None),
        ("query:no", None),
        ("query:ser", None),
        ("authority", b"example.org:443"),
        ("client", b"10.0.0.9"),
    ],
)
def test_reads(hash_on: str, key: bytes | None) -> None:
    head = request(
        *FIELDS, path=b"/a/b?t=1&user=7%208&user=9&empty=&x+y=z&flag", authority=b"Example.ORG:443"
    )
    assert HashKey(hash_on).read(head) == key


@pytest.mark.parametrize(
    ("hash_on", "bare"),
    [
        ("client", request(client=b"")),
        ("authority", request(authority=b"")),
        ("path", request(path=b"")),
        ("path", request(path=b"?a=b")),
        ("query:a", request(path=b"/")),
        ("query:a", request(path=b"/?")),
        ("cookie:a", request()),
        ("cookie:a", request((b"cookie", b""))),
        ("metadata:a-bin", request((b"a-bin", b"=="))),
    ],
)
def test_absent_or_empty_is_none(hash_on: str, bare: PickRequest) -> None:
    assert HashKey(hash_on).read(bare) is None


def test_padded_and_unpadded_metadata_are_one_key() -> None:
    key = HashKey("metadata:id-bin")
    assert key.read(request((b"id-bin", b"YQ=="))) == key.read(request((b"id-bin", b"YQ")))


@given(st.binary(min_size=1, max_size=30), st.text("abc-_.~ %+&=é", min_size=1, max_size=10))
def test_a_query_value_is_found_however_it_is_spelled(value: bytes, name: str) -> None:
    key = HashKey(f"query:{name}")
    for spelled in (quote_from_bytes(value, safe=""), "".join(f"%{byte:02x}" for byte in value)):
        path = f"/x?first=1&{quote_plus(name)}={spelled}&last=2".encode()
        assert key.read(request(path=path)) == value


@given(
    path=st.binary(max_size=60),
    cookie=st.binary(max_size=60),
    hash_on=st.sampled_from(
        ["cookie:a", "query:a", "path", "authority", "client", "metadata:a-bin"]
    ),
)
def test_never_raises_on_what_a_client_sends(path: bytes, cookie: bytes, hash_on: str) -> None:
    value = HashKey(hash_on).read(
        request((b"cookie", cookie), (b"a-bin", cookie), path=path, authority=cookie, client=b"")
    )
    assert value is None or (isinstance(value, bytes) and value)


@pytest.mark.parametrize(
    "hash_on",
    [
        "",
        "header",
        "header:",
        "header:two words",
        "header::path",
        "metadata:",
        "metadata:tilde~",
        "cookie:",
        "cookie:a=b",
        "query:",
        "query",
        "path:x",
        "client:port",
        "Header:x",
        "session",
        "source-ip:x",
    ],
)
def test_refuses_what_it_does_not_know(hash_on: str) -> None:
    with pytest.raises(ValueError, match=r"none of|names no|not the name"):
        HashKey(hash_on)
