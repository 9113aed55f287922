"""The keys of HTTP/1.1 and of what stands at the edges: what is right, and what an error says."""

from __future__ import annotations

import pytest

from gateway import config
from gateway.errors import ConfigError

BASE = """\
[[listeners]]
address = "127.0.0.1:1"
{}
[[routes]]
cluster = "a"
{}
[clusters.a]
endpoints = [{{ address = "127.0.0.1:2" }}]
{}
"""


def test_all_of_them() -> None:
    got = config.parse(
        '[http1]\nkeepalive_timeout = "none"\nmax_body_buffer = "1MiB"\n'
        + BASE.format(
            'trusted_hops = ["10.0.0.0/8", "unix"]\nproxy_protocol_from = ["::1"]',
            "websocket = false\ngrpc_web = false\ncompression = { grpc = true, level = 1 }\n"
            '[routes.cors]\nallow_origins = ["https://*.example.org"]\nmax_age = "1m"',
            'protocol = "http1"\non_cancel = "drain"\ndrain_limit = "1MiB"\nproxy_protocol = "v2"',
        )
    )
    assert got.http1.keepalive_timeout_s is None
    assert got.listeners[0].trusted_hops == ("10.0.0.0/8", "unix")
    assert got.listeners[0].proxy_protocol_from == ("::1",)
    route = got.routes[0]
    assert (route.websocket, route.grpc_web) == (False, False)
    assert route.compression == config.Compression(grpc=True, level=1)
    assert route.cors == config.Cors(allow_origins=("https://*.example.org",), max_age_s=60.0)
    cluster = got.clusters["a"]
    assert (cluster.protocol, cluster.on_cancel) == ("http1", "drain")
    assert (cluster.drain_limit, cluster.proxy_protocol) == (1024 * 1024, "v2")


def test_what_holds_without_them() -> None:
    got = config.parse(BASE.format("", "", ""))
    assert got.clusters["a"].protocol == "auto"
    assert got.clusters["a"].max_connections is None
    assert got.listeners[0].trusted_hops == ()
    assert got.routes[0].cors is None
    assert got.routes[0].compression is None


@pytest.mark.parametrize(
    ("listener", "route", "cluster", "error"),
    [
        (
            'trusted_hops = ["10.0.0.1/8"]',
            "",
            "",
            "3: listeners[0].trusted_hops[0]: 10.0.0",
        ),
        (
            'trusted_hops = "unix"',
            "",
            "",
            "3: listeners[0].trusted_hops: a string, not a list like",
        ),
        ("trusted_hops = [1]", "", "", "3: listeners[0].trusted_hops[0]: a number, not a string"),
        ('proxy_protocol_from = ["all"]', "", "", 'write "10.0.0.0/8", "::1" or "unix"'),
        (
            "",
            'cors = { allow_origins = ["a.test"] }',
            "",
            "6: routes[0].cors.allow_origins[0]: ",
        ),
        ("", "cors = { allow_origins = [] }", "", "allow_origins: empty; at least one origin"),
        ("", "cors = {}", "", "6: routes[0].cors.allow_origins: missing"),
        (
            "",
            'cors = { allow_origins = ["*"], allow_credentials = true }',
            "",
            'allow_credentials: browsers refuse credentials for "*"',
        ),
        (
            "",
            'cors = { allow_origins = ["*"], allow_headers = ["a b"] }',
            "",
            '"a b" is not a token',
        ),
        ("", 'websocket = "yes"', "", "6: routes[0].websocket: a string; allowed: true, false"),
        ("", "compression = { level = 11 }", "", "level: 11 is out of range; allowed: 1 to 9"),
        ("", "compresion = {}", "", 'did you mean "compression"?'),
        (
            "",
            "",
            'protocol = "http/1.1"',
            'unknown value "http/1.1"; allowed: "auto"',
        ),
        ("", "", 'drain_limit = "1MiB"', '9: clusters.a.drain_limit: needs on_cancel = "drain"'),
        ("", "", "proxy_protocol = 2", 'proxy_protocol: a number; allowed: "v1", "v2"'),
    ],
)
def test_errors(listener: str, route: str, cluster: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config.parse(BASE.format(listener, route, cluster))
    assert error in str(raised.value)
