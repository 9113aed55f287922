"""Durations and sizes as the configuration writes them."""

from __future__ import annotations

import math
import re
from fractions import Fraction

DURATION_FORMS = '"100ms", "15s", "30m", "1h", "1h30m" or a number of seconds'
SIZE_FORMS = '"64KiB", "1MiB" or a number of bytes'

_US_PER_UNIT = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
}
_BYTES_PER_UNIT = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}

# Digits are bounded so that a silly text can't become an expensive number.
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_DURATION_PART = re.compile(_NUMBER + "(us|ms|[smhd])")
_SIZE = re.compile(_NUMBER + r" ?(B|[KMGT]iB)")
_BARE = re.compile(_NUMBER)
_DECIMAL_SIZE = re.compile(r"([0-9.]+) ?([kKmMgGtT])([bB]?|i|ib)")


def parse_duration(value: object) -> float | None:
    """Seconds of ``"100ms"``, ``"1h30m"``, ``15`` or ``1.5``; None for ``"none"``.

    Parts of a text go from the larger unit to the smaller one: d, h, m, s, ms, us.

    Raises:
        ValueError: not a duration; the message says what one looks like.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if math.isfinite(value) and value >= 0:
            return float(value)
        raise ValueError(f"{value} is not a duration: {DURATION_FORMS}")
    if not isinstance(value, str):
        raise TypeError(f"a duration is expected: {DURATION_FORMS}")
    if value == "none":
        return None
    total = Fraction(0)
    at, last_unit = 0, math.inf
    while part := _DURATION_PART.match(value, at):
        unit = _US_PER_UNIT[part[2]]
        if unit >= last_unit:
            break
        total += Fraction(part[1]) * unit
        at, last_unit = part.end(), unit
    if value and at == len(value):
        return float(total / 1_000_000)
    if _BARE.fullmatch(value):
        raise ValueError(f'"{value}" has no unit; write "{value}s" for seconds')
    raise ValueError(f'"{value}" is not a duration: {DURATION_FORMS}')


def format_duration(seconds: float | None) -> str:
    """The shortest text for ``seconds`` to the microsecond; ``parse_duration`` reads it back."""
    if seconds is None:
        return "none"
    left = round(seconds * 1_000_000)
    parts = []
    for unit, us in _US_PER_UNIT.items():
        number, left = divmod(left, us)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def parse_size(value: object) -> int:
    """Bytes of ``"64KiB"``, ``"1.5MiB"`` or ``65536``.

    Raises:
        ValueError: not a size; the message says what one looks like.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= 0:
            return value
        raise ValueError(f"{value} is not a size: {SIZE_FORMS}")
    if not isinstance(value, str):
        raise TypeError(f"a size is expected: {SIZE_FORMS}")
    if found := _SIZE.fullmatch(value):
        size = Fraction(found[1]) * _BYTES_PER_UNIT[found[2]]
        if size.denominator == 1:
            return int(size)
        raise ValueError(f'"{value}" is not a whole number of bytes')
    if _BARE.fullmatch(value):
        raise ValueError(f'"{value}" has no unit; write "{value}B" for bytes')
    if found := _DECIMAL_SIZE.fullmatch(value):
        raise ValueError(f'"{value}" is not a size; did you mean "{found[1]}{found[2].upper()}iB"?')
    raise ValueError(f'"{value}" is not a size: {SIZE_FORMS}')


def format_size(size: int) -> str:
    """The shortest exact text for ``size`` bytes; ``parse_size`` reads it back."""
    for unit, factor in _BYTES_PER_UNIT.items():
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}" if factor > 1 else str(size)
    return str(size)
