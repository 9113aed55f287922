"""Certificates on disk, a responder, and a Stapler or Keeper upon them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.certificates.staple import Stapler
from gateway.certificates.state import State
from gateway.certs.make import Issued, make_ca, make_leaf, make_ocsp_signer
from gateway.certs.responder import Responder
from gateway.config.tls import Certificate as Entry
from gateway.telemetry import Counter
from gateway.tls.certificate import Certificate

CA = make_ca()
SIGNER = make_ocsp_signer(CA)


@pytest.fixture
def leaf(tmp_path: Path) -> Issued:
    leaf = make_leaf(CA, ["localhost"])
    leaf.write(tmp_path / "edge.pem", tmp_path / "edge.key", [CA.certificate])
    return leaf


@pytest.fixture
def responder(leaf: Issued) -> Iterator[Responder]:
    with Responder(CA, SIGNER, [leaf.certificate]) as responder:
        yield responder


class Seen:
    """What a Stapler said and counted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: dict[Counter, int] = {}

    def count(self, counter: int) -> None:
        name = Counter(counter)
        self.counts[name] = self.counts.get(name, 0) + 1


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def stapler(tmp_path: Path, leaf: Issued, seen: Seen) -> Callable[..., Stapler]:
    """Make a Stapler: ``stapler(ocsp="fetch", ocsp_url=...)``."""

    def make(**entry: Any) -> Stapler:
        certificate, key = str(tmp_path / "edge.pem"), str(tmp_path / "edge.key")
        found = Certificate.read(certificate, key)
        state = State(str(tmp_path / "state"), found.fingerprint)
        state.prepare()
        settings = Entry(certificate=certificate, private_key=key, **entry)
        return Stapler("edge", settings, found, state, seen.count, seen.lines.append)

    return make
