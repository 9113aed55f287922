"""The server under test: the gateway before a small backend, or any server the environment names.

``CONFORMANCE_TARGET=host:port`` aims the RFC chapters at another server, which must answer 200 to
GET, HEAD and POST of ``/`` with a body of a few octets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .backend import Backend
from .launch import RunningGateway
from .peer import Address


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """The backend behind every gateway of these tests."""
    serving = Backend()
    yield serving
    serving.close()


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Address]:
    """Where the server under test listens."""
    target = os.environ.get("CONFORMANCE_TARGET")
    if target:
        host, _, port = target.rpartition(":")
        yield (host, int(port))
        return
    backend: Backend = request.getfixturevalue("backend")
    directory = tmp_path_factory.mktemp("conformance")
    with RunningGateway(directory, backend.port) as running:
        yield running.address
