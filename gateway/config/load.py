"""``gateway.toml`` -> :class:`gateway.config.Config`.

Three steps, each over the whole file, so that one run shows all the errors of a step: the text is
read by :mod:`tomllib`; every value is checked against its field (keys, types, units, ranges); then
:mod:`gateway.config.check` looks at what the values mean together.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gateway.config.check import check
from gateway.config.fields import FieldSpec, fields_of
from gateway.config.lines import KeyPath, key_lines
from gateway.config.models import Config
from gateway.config.problems import Problems, did_you_mean, listed, nearest
from gateway.config.quantities import format_duration, format_size, parse_duration, parse_size
from gateway.errors import ConfigError

_WRONG = object()
"""Stands for a value whose problem is already noted."""

_AT_LINE = re.compile(r" \(at line ([0-9]+), column [0-9]+\)$")


def load(path: str | os.PathLike[str]) -> Config:
    """Read and check a configuration file.

    Relative paths in it start at its directory.

    Raises:
        ConfigError: the file can't be read or can't be served.
    """
    name = os.fspath(path)
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: not UTF-8 text") from None
    return parse(text, source=name, directory=Path(name).parent)


def parse(text: str, *, source: str = "gateway.toml", directory: Path | None = None) -> Config:
    """Check the text of a configuration; ``source`` names it in errors.

    Relative paths in it start at ``directory``, by default the working directory.

    Raises:
        ConfigError: with a line for each problem.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _AT_LINE.search(message)
        if found is None:
            line, what = text.count("\n") + 1, message.replace(" (at end of document)", "")
            what = f"{what} at the end of the file"
        else:
            line, what = int(found[1]), message[: found.start()]
        raise ConfigError(f"{source}:{line}: not valid TOML: {what}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    problems = Problems(source, key_lines(text))
    reader = _Reader(problems, directory or Path())
    tree = reader.table(Config, raw, ())
    problems.raise_if_any()
    # A default is a path like any other.
    process = tree.setdefault("gateway", {})
    process.setdefault("state_directory", str((directory or Path()) / "gateway-state"))
    config = msgspec.convert(tree, Config)
    check(config, problems)
    problems.raise_if_any()
    return config


class _Reader:
    """Turns what tomllib gave into what msgspec converts without complaint, or notes problems."""

    def __init__(self, problems: Problems, directory: Path) -> None:
        self._problems = problems
        self._directory = directory
        self._by_kind: dict[str, Callable[[FieldSpec, Any, KeyPath], Any]] = {
            "duration": self._duration,
            "size": self._size,
            "integer": self._integer,
            "number": self._number,
            "choice": self._choice,
            "text": self._text,
            "texts": self._texts,
            "flag": self._flag,
            "part": self._part,
        }

    def table(self, model: type[msgspec.Struct], raw: dict[str, Any], path: KeyPath) -> Any:
        """The values of one table, checked; problems are noted."""
        specs = {key: spec for key, spec in fields_of(model).items() if spec.kind != "internal"}
        values = {}
        meant = set()
        for key, value in raw.items():
            spec = specs.get(key)
            if spec is None:
                meant.add(nearest(key, specs))
                self._problems.add((*path, key), _unknown_key(key, specs))
                continue
            values[key] = self._by_kind[spec.kind](spec, value, (*path, key))
        for key, spec in specs.items():
            if spec.required and key not in raw and key not in meant:
                self._problems.add((*path, key), f"missing; {_how_to_write(spec)}")
        return values

    def _part(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        model = spec.model
        if spec.shape == "array":
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                return self._wrong(path, f"not a list of tables; {_how_to_write(spec)}")
            return [self.table(model, item, (*path, i)) for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return self._wrong(path, f"{_type_name(value)}, not a table; {_how_to_write(spec)}")
        if spec.shape == "table":
            return self.table(model, value, path)
        named = {}
        for name, item in value.items():
            if not isinstance(item, dict):
                self._wrong((*path, name), f"not a table; {_how_to_write(spec)}")
                continue
            table = self.table(model, item, (*path, name))
            table["name"] = name
            named[name] = table
        return named

    def _duration(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        try:
            seconds = parse_duration(value)
        except (ValueError, TypeError) as error:
            return self._wrong(path, str(error))
        if seconds is None:
            if spec.extra["none"] is None:
                return self._wrong(path, '"none" is not allowed here; ' + _range(spec))
            return None
        return self._in_range(spec, seconds, value, path)

    def _size(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        try:
            size = parse_size(value)
        except (ValueError, TypeError) as error:
            return self._wrong(path, str(error))
        return self._in_range(spec, size, value, path)

    def _integer(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        word = spec.extra["word"]
        if word is not None and value == word:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            shown = f'"{value}"' if isinstance(value, str) else _type_name(value)
            return self._wrong(path, f"{shown} is not a whole number; {_range(spec)}")
        return self._in_range(spec, value, value, path)

    def _number(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            return self._wrong(path, f"not a number; {_range(spec)}")
        return self._in_range(spec, float(value), value, path)

    def _choice(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        choices = spec.choices
        if not isinstance(value, str):
            return self._wrong(path, f"{_type_name(value)}; allowed: {listed(choices)}")
        if value not in choices:
            hint = did_you_mean(value, choices)
            return self._wrong(path, f'unknown value "{value}"; allowed: {listed(choices)}{hint}')
        return value

    def _text(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        if spec.extra["form"] == "table of strings":
            if not isinstance(value, dict):
                return self._wrong(path, f'{_type_name(value)}, not a table like {{ name = "x" }}')
            for name, item in value.items():
                if not isinstance(item, str):
                    self._wrong((*path, name), f"{_type_name(item)}, not a string")
            return value
        if not isinstance(value, str):
            return self._wrong(path, f"{_type_name(value)}, not a string")
        if spec.extra["form"] == "path":
            return str(self._directory / value)
        return value

    def _texts(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, list):
            return self._wrong(path, f'{_type_name(value)}, not a list like ["x"]')
        for i, item in enumerate(value):
            if not isinstance(item, str):
                self._wrong((*path, i), f"{_type_name(item)}, not a string")
        return value

    def _flag(self, spec: FieldSpec, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, bool):
            return self._wrong(path, f"{_type_name(value)}; allowed: true, false")
        return value

    def _in_range(self, spec: FieldSpec, number: float, written: Any, path: KeyPath) -> Any:
        if spec.extra["least"] <= number <= spec.extra["most"]:
            return number
        shown = f'"{written}"' if isinstance(written, str) else written
        return self._wrong(path, f"{shown} is out of range; {_range(spec)}")

    def _wrong(self, path: KeyPath, message: str) -> object:
        self._problems.add(path, message)
        return _WRONG


def _unknown_key(key: str, specs: dict[str, FieldSpec]) -> str:
    near = nearest(key, specs)
    if near is not None:
        return f'unknown key; did you mean "{near}"?'
    homes = [home for home, names in _homes().items() if key in names]
    if homes:
        return f"unknown key here; it belongs in {' or '.join(homes)}"
    return f"unknown key; known here: {', '.join(specs)}"


def _homes() -> dict[str, set[str]]:
    """The keys of each table of the file, by the table's header."""
    return {_header(spec): set(fields_of(spec.model)) for spec in fields_of(Config).values()}


def _header(spec: FieldSpec) -> str:
    return {"table": "[{}]", "array": "[[{}]]", "named": "[{}.NAME]"}[spec.shape].format(spec.key)


def _how_to_write(spec: FieldSpec) -> str:
    if spec.kind == "part" and spec.key == "endpoints":
        return 'write endpoints = [{ address = "127.0.0.1:9001" }]'
    if spec.kind == "part" and spec.key == "match":
        return 'write match = { path_prefix = "/" }'
    if spec.kind == "part":
        return f"write {_header(spec)}"
    return f"write {spec.key} = ..."


def _range(spec: FieldSpec) -> str:
    least, most = spec.extra["least"], spec.extra["most"]
    if spec.kind == "duration":
        text = f'"{format_duration(least)}" to "{format_duration(most)}"'
        other = "none" if spec.extra["none"] is not None else None
    elif spec.kind == "size":
        text, other = f"{_size_bound(least)} to {_size_bound(most)}", None
    else:
        text, other = f"{least} to {most}", spec.extra.get("word")
    return f"allowed: {text}" + (f' or "{other}"' if other else "")


def _size_bound(size: int) -> str:
    text = format_size(size)
    return text if text.isdigit() else f'"{text}"'


def _type_name(value: object) -> str:
    """What a TOML author calls the type of a value."""
    names: list[tuple[type, str]] = [
        (bool, "a boolean"),
        (str, "a string"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (dict, "a table"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "a date or time")
