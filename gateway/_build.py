"""Whether the hot modules run compiled or interpreted.

The same file runs both ways; only the module that was loaded tells which one it is.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES

DISTRIBUTION = "trio-gateway"
"""What pip calls it."""

HOT_MODULES = (
    "gateway.head",
    "gateway.wire.huffman",
    "gateway.wire.hpack",
    "gateway.wire.frames",
    "gateway.wire.fields",
    "gateway.wire.forwarding",
    "gateway.wire.codec",
    "gateway.wire.http1.heads",
    "gateway.wire.http1.writing",
    "gateway.wire.http1.body",
    "gateway.wire.http1.connection",
    "gateway.wire.http1.server",
    "gateway.wire.http1.client",
    "gateway.wire.http2.sending",
    "gateway.wire.http2.control",
    "gateway.wire.http2.connection",
    "gateway.tls.client_hello",
    "gateway.routing.table",
    "gateway.balance.endpoint",
    "gateway.balance.request",
    "gateway.balance.hash_key",
    "gateway.balance.ring_hash",
    "gateway.balance.least_connections",
    "gateway.balance.round_robin",
    "gateway.balance.random_choice",
    "gateway.net.reactor",
    "gateway.net.transport",
    "gateway.upstream.connection",
    "gateway.upstream.pool",
    "gateway.upstream.cluster",
    "gateway.proxy.plan",
    "gateway.proxy.exchange",
    "gateway.proxy.downstream",
)
"""The list ``compiled`` of pyproject.toml; one that is not there is passed over."""


def compiled() -> bool:
    """Whether every hot module was loaded compiled."""
    loaded = _loaded()
    return bool(loaded) and all(loaded.values())


def describe() -> str:
    """``compiled``, ``interpreted``, or which modules are interpreted when some are."""
    loaded = _loaded()
    slow = [name for name, is_compiled in loaded.items() if not is_compiled]
    if not slow and loaded:
        return "compiled"
    if len(slow) == len(loaded):
        return "interpreted"
    return f"compiled but for {', '.join(slow)}"


def version() -> str:
    """The version of the installed distribution."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


def _loaded() -> dict[str, bool]:
    """For each hot module whether it is an extension."""
    found = {}
    for name in HOT_MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        found[name] = (module.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
    return found
