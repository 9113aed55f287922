"""Renders ``docs/configuration.md`` from the models.

::

    python -m gateway.config.reference > docs/configuration.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.config.fields import FieldSpec, fields_of
from gateway.config.models import Config
from gateway.config.quantities import format_duration, format_size

EXAMPLE = """\
[gateway]
workers = "auto"            # one per available core

[[listeners]]
address = "0.0.0.0:8080"    # or "unix:/run/gateway.sock"

[[routes]]
match = { path_prefix = "/inference.GRPCInferenceService/" }
cluster = "llama"
timeout = "none"            # streams live as long as they live; idle_timeout guards them

[clusters.llama]
policy = "ring_hash"        # or "least_connections", ...
hash_on = "header:x-session-id"
endpoints = [
  { address = "127.0.0.1:9001", weight = 100 },
  { address = "127.0.0.1:9002", weight = 100 },
]
"""

_INTRODUCTION = f"""\
<!-- Made by `python -m gateway.config.reference` from the models in gateway/config. -->

# Configuration

One TOML file. `gateway check FILE` checks it without serving; an error names the line, the key,
what is allowed and, for a misspelt key or value, the nearest known one. Unknown keys are errors.

```toml
{EXAMPLE}```

## Values

**Durations** are strings with a unit (`us`, `ms`, `s`, `m`, `h`, `d`, largest first: `"100ms"`,
`"15s"`, `"1h30m"`) or numbers of seconds (`15`, `0.1`). Where a key can be switched off,
`"none"` does it, and the table says what that means.

**Sizes** are strings with a unit (`B`, `KiB`, `MiB`, `GiB`, `TiB`: `"64KiB"`) or numbers of bytes.

**Addresses** are `"host:port"`, `"[v6]:port"` or `"unix:/absolute/path"`; those of endpoints may
begin with `http://` or `grpc://`, or with `https://` or `grpcs://` for TLS.

**Routes** are tried in the order of the file; the first whose keys all match takes the request.
Paths are compared without the query, as a backend that normalizes would read them (see
[smuggling.md](smuggling.md)).
"""


def render() -> str:
    """The whole page, in Markdown."""
    parts = [_INTRODUCTION]
    for spec in fields_of(Config).values():
        parts.extend(_section(spec, spec.key, 2))
    return "\n".join(parts)


def _section(spec: FieldSpec, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} {_title(spec, path)}\n"
    yield f"{_docstring(spec.model)}\n"
    if level == 2:
        yield f"{_presence(spec)}\n"
    fields = [field for field in fields_of(spec.model).values() if field.kind != "internal"]
    yield "| Key | Type | Default | Range | Meaning |\n|---|---|---|---|---|"
    yield "\n".join(_row(field) for field in fields) + "\n"
    for field in fields:
        if field.kind == "part":
            yield from _section(field, f"{path}.{field.key}", level + 1)


def _title(spec: FieldSpec, path: str) -> str:
    if path != spec.key:
        return f"`{path}`"
    return {"table": "`[{}]`", "array": "`[[{}]]`", "named": "`[{}.NAME]`"}[spec.shape].format(path)


def _presence(spec: FieldSpec) -> str:
    if spec.shape == "table":
        return "May be left out; so may each of its keys."
    return "At least one is required." if spec.required else "May be left out."


def _docstring(model: type[msgspec.Struct]) -> str:
    return (inspect.getdoc(model) or "").replace("``", "`")


def _row(spec: FieldSpec) -> str:
    cells = (f"`{spec.key}`", _type(spec), _default(spec), _range(spec), _meaning(spec))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(spec: FieldSpec) -> str:
    if spec.kind == "part":
        return "table" if spec.shape == "table" else "list of tables"
    if spec.kind == "choice":
        return "string"
    if spec.kind == "texts":
        return "list of strings"
    if spec.kind == "flag":
        return "boolean"
    if spec.kind == "text":
        form: str = spec.extra["form"]
        return form
    return spec.kind


def _default(spec: FieldSpec) -> str:
    default = spec.default
    if spec.required:
        return "required"
    if spec.kind == "part" or default == {}:
        return "empty"
    if default is None:
        return '`"none"`' if spec.extra.get("none") else "absent"
    return _value(spec, default)


def _value(spec: FieldSpec, value: Any) -> str:
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(f'{chr(34)}{item}{chr(34)}' for item in value)}]`"
    if spec.kind == "duration":
        return f'`"{format_duration(value)}"`'
    if spec.kind == "size":
        text = format_size(value)
        return f"`{text}`" if text.isdigit() else f'`"{text}"`'
    return f"`{value}`"


def _range(spec: FieldSpec) -> str:
    if spec.kind == "flag":
        return "`true`, `false`"
    if spec.kind == "choice":
        return ", ".join(f'`"{choice}"`' for choice in spec.choices)
    if "least" not in spec.extra:
        return ""
    text = f"{_value(spec, spec.extra['least'])} to {_value(spec, spec.extra['most'])}"
    if spec.extra.get("word"):
        text += f', `"{spec.extra["word"]}"`'
    if spec.extra.get("none"):
        text += ', `"none"`'
    return text


def _meaning(spec: FieldSpec) -> str:
    none = spec.extra.get("none")
    return spec.description + (f' `"none"`: {none}.' if none else "")


if __name__ == "__main__":
    sys.stdout.write(render())
