"""Fixtures of the rig: a reactor turned by hand, and peers on real sockets."""

from __future__ import annotations

from tests.rig import backend, rig

__all__ = ["backend", "rig"]
