"""Which route takes a request: request head -> :class:`gateway.config.Route`."""

from __future__ import annotations

from gateway.routing.table import RouteTable

__all__ = ["RouteTable"]
