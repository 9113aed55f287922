"""The configuration: ``gateway.toml`` read into frozen models.

:func:`load` reads a file and :func:`parse` a text; both raise
:class:`gateway.errors.ConfigError`, whose message names the file, the line where it can, the key
and what would be right.
"""

from __future__ import annotations

from gateway.config.address import Address, TcpAddress, UnixAddress, parse_address
from gateway.config.limits import Http1, Http2
from gateway.config.load import load, parse
from gateway.config.models import (
    Cluster,
    ClusterEndpoint,
    Compression,
    Config,
    Cors,
    Gateway,
    HashFallback,
    Listener,
    Match,
    PolicyName,
    Route,
)
from gateway.config.tls import Tls

__all__ = [
    "Address",
    "Cluster",
    "ClusterEndpoint",
    "Compression",
    "Config",
    "Cors",
    "Gateway",
    "HashFallback",
    "Http1",
    "Http2",
    "Listener",
    "Match",
    "PolicyName",
    "Route",
    "TcpAddress",
    "Tls",
    "UnixAddress",
    "load",
    "parse",
    "parse_address",
]
