"""The syntax of ``hash_on``: what ``ring_hash`` hashes.

:mod:`gateway.balance` reads the same texts to find the key of a request; here they are only
refused with a message that a user can act on.
"""

from __future__ import annotations

import re

from gateway.config.problems import did_you_mean

FORMS = (
    '"header:NAME", "metadata:NAME", "cookie:NAME", "query:NAME", "path", "authority" or "client"'
)

TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A field name, a method (RFC 9110 section 5.6.2)."""

_METADATA_NAME = re.compile(r"[0-9A-Za-z_.-]+")
_ANY = re.compile(r".+", re.DOTALL)
_NAMES = {"header": TOKEN, "metadata": _METADATA_NAME, "cookie": TOKEN, "query": _ANY}
_NAMELESS = ("path", "authority", "client")


def check_hash_source(text: str) -> None:
    """Refuse what is no hash source.

    Raises:
        ValueError: the message says what one looks like.
    """
    kind, colon, name = text.partition(":")
    if kind in _NAMELESS:
        if colon:
            raise ValueError(f'"{text}": {kind} takes no name; write "{kind}"')
    elif kind not in _NAMES:
        hint = did_you_mean(kind, (*_NAMES, *_NAMELESS))
        raise ValueError(f'"{text}" is not a hash source: {FORMS}{hint}')
    elif not name:
        raise ValueError(f'"{text}" names no {kind}; write "{kind}:NAME"')
    elif not _NAMES[kind].fullmatch(name):
        raise ValueError(f'"{name}" in "{text}" is not a {kind} name')
