"""What is wrong with a configuration, gathered so that one run shows everything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gateway.config.lines import KeyPath, render_path
from gateway.errors import ConfigError


class Problems:
    """Errors of one file. Each names the file, the line, the key and what would be right."""

    def __init__(self, source: str, lines: dict[KeyPath, int]) -> None:
        self._source = source
        self._lines = lines
        self._found: list[tuple[int, str]] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Note that the value at ``path`` is wrong. A missing key gets the line of its table."""
        line = self._line(path)
        where = f"{self._source}:{line}" if line else self._source
        self._found.append((line, f"{where}: {render_path(path)}: {message}"))

    def raise_if_any(self) -> None:
        """Raise one :class:`ConfigError` with all problems, a line each, in the file's order."""
        if self._found:
            self._found.sort(key=lambda problem: problem[0])
            raise ConfigError("\n".join(message for _, message in self._found))

    def _line(self, path: KeyPath) -> int:
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 0)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be, if one is near."""
    by_lower = {name.lower().replace("-", "_"): name for name in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), by_lower, 1, 0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "…"?``, or nothing when no known word is near."""
    name = nearest(word, known)
    return f'; did you mean "{name}"?' if name is not None else ""


def listed(words: Iterable[str]) -> str:
    """``"a", "b", "c"``."""
    return ", ".join(f'"{word}"' for word in words)
