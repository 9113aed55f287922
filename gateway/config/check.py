"""What must hold between the values of a configuration, each of them right by itself."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from gateway.config.address import TcpAddress, UnixAddress, parse_address
from gateway.config.hash_source import FORMS as HASH_FORMS
from gateway.config.hash_source import TOKEN, check_hash_source
from gateway.config.limits import Http2
from gateway.config.lines import KeyPath
from gateway.config.models import Cluster, Config, Cors, Listener, Match, Route
from gateway.config.problems import Problems, did_you_mean, listed
from gateway.config.quantities import format_duration, format_size
from gateway.config.tls_check import check_cluster_tls, check_tls

_OCTAL_MODE = re.compile(r"0?[0-7]{3}")
_PATH = re.compile(r"/[!-\"$->@-~]*")
_AUTHORITY = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?(?::[0-9]{1,5})?"
    r"|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?"
)
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])"
    r"(?::[0-9]{1,5})?"
)
_FIELD_VALUE = re.compile(
    r"(?:[!-~\x80-\U0010ffff](?:[ -~\t\x80-\U0010ffff]*[!-~\x80-\U0010ffff])?)?"
)


def check(config: Config, problems: Problems) -> None:
    """Note every rule between values that ``config`` breaks."""
    _check_limits(config, problems)
    _check_http2(config.http2, problems)
    check_tls(config, problems)
    _check_listeners(config, problems)
    for name, cluster in config.clusters.items():
        _check_cluster(("clusters", name), cluster, problems)
    _check_routes(config, problems)


def _check_limits(config: Config, problems: Problems) -> None:
    for key, example in (
        ("listeners", "[[listeners]]"),
        ("routes", "[[routes]]"),
        ("clusters", "[clusters.NAME]"),
    ):
        if not getattr(config, key):
            problems.add((key,), f"empty; at least one {example} is needed")
    gateway = config.gateway
    _ordered(
        problems,
        ("gateway",),
        {
            "restart_backoff": gateway.restart_backoff_s,
            "restart_backoff_max": gateway.restart_backoff_max_s,
        },
        format_duration,
    )
    if config.http2.max_connection_buffer > gateway.max_buffered_bytes:
        problems.add(
            ("http2", "max_connection_buffer"),
            f"{format_size(config.http2.max_connection_buffer)} is more than "
            f"gateway.max_buffered_bytes ({format_size(gateway.max_buffered_bytes)})",
        )


def _check_http2(http2: Http2, problems: Problems) -> None:
    stream = {
        "initial_stream_window": http2.initial_stream_window,
        "max_stream_window": http2.max_stream_window,
        "max_connection_window": http2.max_connection_window,
    }
    connection = {
        "initial_connection_window": http2.initial_connection_window,
        "max_connection_window": http2.max_connection_window,
    }
    _ordered(problems, ("http2",), stream, format_size)
    _ordered(problems, ("http2",), connection, format_size)


def _ordered(
    problems: Problems,
    path: KeyPath,
    values: Mapping[str, float],
    show: Callable[[int], str],
) -> None:
    """Each value may be at most the next one."""
    for (low_key, low), (high_key, high) in pairwise(values.items()):
        if low > high:
            problems.add(
                (*path, low_key),
                f"{show(low)} is more than {high_key} ({show(high)})",  # type: ignore[arg-type]
            )


def _check_listeners(config: Config, problems: Problems) -> None:
    seen: dict[str, int] = {}
    for index, listener in enumerate(config.listeners):
        path: KeyPath = ("listeners", index)
        _check_listener(path, listener, problems)
        address = _canonical(listener.address)
        if address.endswith(":0"):
            continue
        if address in seen:
            problems.add(
                (*path, "address"),
                f'"{listener.address}" is the address of listeners[{seen[address]}] too',
            )
        seen.setdefault(address, index)


def _canonical(address: str) -> str:
    try:
        return str(parse_address(address))
    except ValueError:
        return address


def _check_listener(path: KeyPath, listener: Listener, problems: Problems) -> None:
    try:
        target = listener.target()
    except ValueError as error:
        problems.add((*path, "address"), str(error))
        return
    for key, networks in (
        ("trusted_hops", listener.trusted_hops),
        ("proxy_protocol_from", listener.proxy_protocol_from),
    ):
        _check_networks((*path, key), networks, problems)
    if listener.mode is None:
        return
    if not isinstance(target, UnixAddress):
        problems.add((*path, "mode"), "only a unix socket has permissions; remove the key")
    elif not _OCTAL_MODE.fullmatch(listener.mode):
        problems.add(
            (*path, "mode"), f'"{listener.mode}" is not a permission in octal, like "0660"'
        )


def _check_networks(path: KeyPath, networks: Sequence[str], problems: Problems) -> None:
    for index, network in enumerate(networks):
        if network == "unix":
            continue
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            problems.add((*path, index), f'{error}; write "10.0.0.0/8", "::1" or "unix"')


def _check_cors(path: KeyPath, cors: Cors, problems: Problems) -> None:
    if not cors.allow_origins:
        problems.add((*path, "allow_origins"), "empty; at least one origin is needed")
    for index, origin in enumerate(cors.allow_origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            problems.add(
                (*path, "allow_origins", index),
                f'"{origin}" is not an origin: "https://app.example.org", '
                '"https://*.example.org" or "*"',
            )
    if cors.allow_credentials and "*" in cors.allow_origins:
        problems.add(
            (*path, "allow_credentials"),
            'browsers refuse credentials for "*": name the origins in allow_origins',
        )
    for key, names in (
        ("allow_methods", cors.allow_methods),
        ("allow_headers", cors.allow_headers),
        ("expose_headers", cors.expose_headers),
    ):
        for index, name in enumerate(names):
            if not TOKEN.fullmatch(name):
                problems.add((*path, key, index), f'"{name}" is not a token')


def _check_cluster(path: KeyPath, cluster: Cluster, problems: Problems) -> None:
    if not cluster.name:
        problems.add(path, "a cluster needs a name")
    _check_endpoints(path, cluster, problems)
    check_cluster_tls((*path, "tls"), cluster.tls, problems)
    if cluster.hash_on is not None:
        try:
            check_hash_source(cluster.hash_on)
        except ValueError as error:
            problems.add((*path, "hash_on"), str(error))
    elif cluster.policy == "ring_hash":
        problems.add((*path, "hash_on"), f'missing; policy "ring_hash" needs it: {HASH_FORMS}')
    if cluster.max_connections is not None:
        _ordered(
            problems,
            path,
            {
                "min_connections": cluster.min_connections,
                "max_connections": cluster.max_connections,
            },
            str,
        )
    if cluster.drain_limit is not None and cluster.on_cancel != "drain":
        problems.add((*path, "drain_limit"), 'needs on_cancel = "drain"')
    _ordered(
        problems,
        path,
        {"backoff_base": cluster.backoff_base_s, "backoff_max": cluster.backoff_max_s},
        format_duration,
    )


def _check_endpoints(path: KeyPath, cluster: Cluster, problems: Problems) -> None:
    if not cluster.endpoints:
        problems.add((*path, "endpoints"), "empty; at least one endpoint is needed")
    if len(cluster.endpoints) > cluster.max_endpoints:
        problems.add(
            (*path, "endpoints"),
            f"{len(cluster.endpoints)} endpoints are more than max_endpoints "
            f"({cluster.max_endpoints})",
        )
    seen: dict[str, int] = {}
    for index, endpoint in enumerate(cluster.endpoints):
        key = (*path, "endpoints", index, "address")
        try:
            target = endpoint.target()
        except ValueError as error:
            problems.add(key, str(error))
            continue
        if (
            endpoint.secure
            and isinstance(target, UnixAddress)
            and cluster.tls.verify
            and cluster.tls.server_name is None
        ):
            problems.add(
                (*path, "tls", "server_name"),
                f'missing; "{endpoint.address}" has no host name that its certificate could be for',
            )
        if isinstance(target, TcpAddress) and target.port == 0:
            problems.add(key, f'"{endpoint.address}": an endpoint needs a port, 1..65535')
        address = str(target)
        if address in seen:
            problems.add(
                key, f'"{endpoint.address}" is the address of endpoints[{seen[address]}] too'
            )
        seen.setdefault(address, index)


def _check_routes(config: Config, problems: Problems) -> None:
    for index, route in enumerate(config.routes):
        path: KeyPath = ("routes", index)
        _check_route_cluster(path, route, list(config.clusters), problems)
        _check_match((*path, "match"), route.match, problems)
        for number, name in enumerate(route.early_data):
            if not TOKEN.fullmatch(name) and not _PATH.fullmatch(name):
                problems.add(
                    (*path, "early_data", number),
                    f'"{name}" is neither a method ("GET") nor the path of a gRPC method '
                    '("/package.Service/Method")',
                )
        if route.cors is not None:
            _check_cors((*path, "cors"), route.cors, problems)


def _check_route_cluster(
    path: KeyPath, route: Route, clusters: Sequence[str], problems: Problems
) -> None:
    if route.cluster not in clusters and clusters:
        hint = did_you_mean(route.cluster, clusters)
        problems.add(
            (*path, "cluster"), f'no cluster "{route.cluster}"; known: {listed(clusters)}{hint}'
        )


def _check_match(path: KeyPath, match: Match, problems: Problems) -> None:
    if match.path is not None and match.path_prefix is not None:
        problems.add((*path, "path_prefix"), "give path or path_prefix, not both")
    for key, value in (("path", match.path), ("path_prefix", match.path_prefix)):
        # "OPTIONS *" has no slash (RFC 9110 section 7.1).
        if value is None or (key == "path" and value == "*"):
            continue
        if not _PATH.fullmatch(value):
            problems.add(
                (*path, key),
                f'"{value}" is not a path; it starts with "/" and has no query, no "#" and no '
                "blank (as sent: percent-encoded)",
            )
    if match.authority is not None and not _AUTHORITY.fullmatch(match.authority):
        problems.add(
            (*path, "authority"),
            f'"{match.authority}" is not an authority: "example.org", "example.org:8080" or '
            '"*.example.org"',
        )
    if match.method is not None and not TOKEN.fullmatch(match.method):
        problems.add((*path, "method"), f'"{match.method}" is not a method, like "POST"')
    _check_match_headers((*path, "headers"), match.headers, problems)


def _check_match_headers(path: KeyPath, headers: Mapping[str, str], problems: Problems) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        key = (*path, name)
        if name.startswith(":"):
            problems.add(key, "a pseudo-field; use path, authority or method of the match")
        elif not TOKEN.fullmatch(name):
            problems.add(key, f'"{name}" is not a field name')
        elif name.lower() in seen:
            problems.add(key, "given twice; field names have no case")
        seen.add(name.lower())
        if not _FIELD_VALUE.fullmatch(value):
            problems.add(key, "the value has a control character or a blank at an end")
