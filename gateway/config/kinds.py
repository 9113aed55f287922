"""How a field of the configuration is described: kind, unit, range and meaning.

The models annotate each field with one of these. :mod:`gateway.config.load` reads them to convert
and check a value, :mod:`gateway.config.reference` to write the reference. Bounds are kept in
``extra`` and not as msgspec's ``ge`` and ``le``, which refuse a number that may also be absent.
"""

from __future__ import annotations

from typing import Any

import msgspec

INTERNAL = msgspec.Meta(extra={"kind": "internal"})
"""Filled in by the loader; not a key of the file."""


def _meta(kind: str, description: str, **extra: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra={"kind": kind, **extra})


def duration(
    description: str, *, least: float = 0.0, most: float = 31_536_000.0, none: str | None = None
) -> msgspec.Meta:
    """Seconds. ``none`` says what the value ``"none"`` means; without it ``"none"`` is refused."""
    return _meta("duration", description, least=least, most=most, none=none)


def size(description: str, *, least: int = 0, most: int = 2**40) -> msgspec.Meta:
    """Bytes."""
    return _meta("size", description, least=least, most=most)


def count(
    description: str, *, least: int = 0, most: int = 2**31 - 1, word: str | None = None
) -> msgspec.Meta:
    """A whole number, or ``word`` where one is given."""
    return _meta("integer", description, least=least, most=most, word=word)


def share(description: str, *, least: float = 0.0, most: float = 1.0) -> msgspec.Meta:
    """A fraction."""
    return _meta("number", description, least=least, most=most)


def text(description: str, *, form: str = "string") -> msgspec.Meta:
    """A string; ``form`` names its syntax in the reference."""
    return _meta("text", description, form=form)


def texts(description: str) -> msgspec.Meta:
    """A list of strings."""
    return _meta("texts", description)


def flag(description: str) -> msgspec.Meta:
    """True or false."""
    return _meta("flag", description)


def choice(description: str) -> msgspec.Meta:
    """One of the values of the field's ``Literal``."""
    return _meta("choice", description)


def part(description: str) -> msgspec.Meta:
    """A table or an array of tables."""
    return _meta("part", description)


def toml_name(attribute: str) -> str:
    """The key of an attribute: seconds carry ``_s`` in Python and no unit in the file."""
    return attribute.removesuffix("_s")
