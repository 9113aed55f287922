"""The keys of a model, read from its annotations once."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec


class FieldSpec(msgspec.Struct, frozen=True):
    """One key: ``attribute`` in Python, ``key`` in the file; ``default`` is NODEFAULT if required.

    ``extra`` is what :mod:`gateway.config.kinds` put there: ``kind`` and, by kind, ``least``,
    ``most``, ``none``, ``word`` or ``form``.
    """

    attribute: str
    key: str
    type: Any
    kind: str
    extra: dict[str, Any]
    description: str
    default: Any

    @property
    def required(self) -> bool:
        """Whether the file must have the key."""
        return self.default is msgspec.NODEFAULT

    @property
    def optional(self) -> bool:
        """Whether the value may be absent (None)."""
        return type(None) in get_args(self.type)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a ``Literal``."""
        for kind in (self.type, *get_args(self.type)):
            if get_origin(kind) is Literal:
                return get_args(kind)
        return ()

    @property
    def model(self) -> type[msgspec.Struct]:
        """The model of a ``part``: of the table itself, or of each of its elements."""
        inner = self.type
        for argument in get_args(self.type):
            if isinstance(argument, type) and issubclass(argument, msgspec.Struct):
                inner = argument
        return inner

    @property
    def shape(self) -> str:
        """How a part is written: ``table``, ``array`` (``[[key]]``), ``named`` (``[key.NAME]``)."""
        origin = get_origin(self.type)
        return "array" if origin is tuple else "named" if origin is dict else "table"


@cache
def fields_of(model: type[msgspec.Struct]) -> dict[str, FieldSpec]:
    """The fields of ``model`` by their key in the file, in the order of the class."""
    hints = get_type_hints(model, include_extras=True)
    specs = {}
    for field in msgspec.structs.fields(model):
        bare, meta = _unwrap(hints[field.name])
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        extra = dict(meta.extra or {})
        specs[field.encode_name] = FieldSpec(
            attribute=field.name,
            key=field.encode_name,
            type=bare,
            kind=extra.pop("kind"),
            extra=extra,
            description=meta.description or "",
            default=default,
        )
    return specs


def _unwrap(hint: Any) -> tuple[Any, msgspec.Meta]:
    # get_type_hints may put "| None" around an Annotated whose default is None.
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if get_origin(arg) is Annotated)
    return hint.__origin__, hint.__metadata__[0]
