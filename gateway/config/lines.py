"""On which line of a TOML text each key stands.

:mod:`tomllib` reads values and forgets where they were. This walks a text that tomllib has
accepted, so it need not refuse anything: it only has to know where keys begin and values end.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

KeyPath = tuple[str | int, ...]
"""Keys of tables and indexes of arrays, outermost first: ``("listeners", 0, "address")``."""

_BLANK = re.compile(r"[ \t]*")
_FILLER = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\]|\\.)*"|' r"'[^']*'", re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of each key, table and array element of a valid TOML text."""
    return _Walk(text).run()


def render_path(path: KeyPath) -> str:
    """``clusters.llama.endpoints[0].address``; keys that are not bare are quoted."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else f'"{part}"'
            out += f".{name}" if out else name
    return out


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._lines: dict[KeyPath, int] = {}
        self._table_counts: dict[KeyPath, int] = {}

    def run(self) -> dict[KeyPath, int]:
        prefix: KeyPath = ()
        while True:
            self._skip(_FILLER)
            if self._at >= len(self._text):
                return self._lines
            if self._text[self._at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)

    def _line(self) -> int:
        return bisect_right(self._line_starts, self._at)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _header(self) -> KeyPath:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        keys = self._keys()
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        for depth, key in enumerate(keys, 1):
            path = (*path, key)
            if is_array and depth == len(keys):
                self._table_counts[path] = self._table_counts.get(path, 0) + 1
            self._lines.setdefault(path, line)
            if path in self._table_counts:
                path = (*path, self._table_counts[path] - 1)
                self._lines.setdefault(path, line)
        # A table that was only implied by a deeper header so far gets its own line.
        self._lines[path] = line
        return path

    def _pair(self, prefix: KeyPath) -> None:
        line = self._line()
        path = prefix
        for key in self._keys():
            path = (*path, key)
            self._lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _keys(self) -> list[str]:
        """A dotted key; stops at what follows it."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            quoted = self._skip(_STRING)
            keys.append(tomllib.loads(f"k={quoted}")["k"] if quoted else self._skip(_BARE_KEY))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        opening = self._text[self._at]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        elif not self._skip(_STRING):
            self._skip(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_FILLER)
            if self._text[self._at] == "]":
                self._at += 1
                return
            self._lines[*path, index] = self._line()
            self._value((*path, index))
            index += 1
            self._skip_comma()

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while True:
            self._skip(_FILLER)
            if self._text[self._at] == "}":
                self._at += 1
                return
            self._pair(path)
            self._skip_comma()

    def _skip_comma(self) -> None:
        self._skip(_FILLER)
        if self._text[self._at] == ",":
            self._at += 1
