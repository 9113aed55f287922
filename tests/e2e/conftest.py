"""Fixtures of the end-to-end tests: backends, the gateway, channels, and the check for leaks.

Each fixture is a factory whose products end with the test. The gateway's end is part of every
test: before it, all gauges (streams, exchanges, transports, in flight) must be back at zero; then
SIGTERM must end it with exit code 0, and no worker may have died on the way.
"""

from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc
import pytest

from gateway.demo.backend import MAX_MESSAGE_BYTES, Backend, Call
from gateway.demo.tokens_pb2_grpc import TokensStub

from .processes import WAIT_S, GatewayProcess, Table, free_port
from .raw import RawBackend, echo
from .tls import CLUSTER, Authority, edge


class Stoppable(Protocol):
    """A server."""

    def stop(self) -> None:
        """Stop and free the port."""


T = TypeVar("T", bound=Stoppable)


class Stopping(Protocol):
    def __call__(self, server: T) -> T:
        """Have ``server`` stopped when the test is over."""


class ObservedBackend(Backend):
    """A grpcio server in this process; ``next_call`` tells what it saw."""

    def __init__(self, name: str, interval_s: float = 0.0) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        super().__init__(name, interval_s=interval_s, observer=self.calls.put)

    def next_call(self) -> Call:
        """The next call that began; ``queue.Empty`` if none does."""
        return self.calls.get(timeout=WAIT_S)


class StartGateway(Protocol):
    def __call__(
        self,
        endpoints: Sequence[Any],
        *,
        workers: int = 1,
        listener: Table | None = None,
        route: Table | None = None,
        cluster: Table | None = None,
        http2: Table | None = None,
        gateway: Table | None = None,
        config: Table | None = None,
    ) -> GatewayProcess:
        """Start a gateway in front of ``endpoints`` (anything with an ``address``).

        The tables are added to those of the one listener, route and cluster (``main``).
        ``config`` is laid over the whole: its routes come before the one made here, its clusters
        beside it.
        """


StartBackend = Callable[..., ObservedBackend]
# grpcio's stubs know neither next() nor cancel() of a stream, and disagree about metadata.
OpenChannel = Callable[..., Any]
OpenStub = Callable[..., Any]
FindTool = Callable[[str], str]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates; see :meth:`Authority.leaf`."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What ends after the gateway: servers."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def stopping(stack: ExitStack) -> Stopping:
    """Give a server to it, and it is stopped when the test is over."""

    def stopping(server: T) -> T:
        stack.callback(server.stop)
        return server

    return stopping


@pytest.fixture
def backend(stack: ExitStack) -> StartBackend:
    """Start a grpcio server: ``backend(name, interval_s=0.0)``."""

    def start(name: str, interval_s: float = 0.0) -> ObservedBackend:
        server = ObservedBackend(name, interval_s)
        stack.callback(server.stop)
        return server

    return start


def config_for(
    endpoints: Sequence[Any],
    *,
    workers: int = 1,
    listener: Table | None = None,
    route: Table | None = None,
    cluster: Table | None = None,
    http2: Table | None = None,
    gateway: Table | None = None,
    config: Table | None = None,
) -> dict[str, Any]:
    """The configuration that :class:`StartGateway` describes."""
    extra: dict[str, Any] = dict(config or {})
    main = {
        "endpoints": [{"address": endpoint.address} for endpoint in endpoints],
        # Connections without streams go soon, so that a leaked one stands out.
        "idle_timeout": "200ms",
        **(cluster or {}),
    }
    return {
        "gateway": {"workers": workers, "drain_timeout": "10s", **(gateway or {})},
        "http2": dict(http2 or {}),
        "listeners": [{"address": f"127.0.0.1:{free_port()}", **(listener or {})}],
        "routes": [*extra.pop("routes", ()), {"cluster": "main", **(route or {})}],
        "clusters": {"main": main, **extra.pop("clusters", {})},
        **extra,
    }


@pytest.fixture
def gateway(stack: ExitStack, tmp_path: Path) -> Iterator[StartGateway]:
    """Start a gateway; see :class:`StartGateway`."""
    started: list[GatewayProcess] = []

    def start(endpoints: Sequence[Any], **tables: Any) -> GatewayProcess:
        directory = tmp_path / f"gateway{len(started)}"
        directory.mkdir()
        process = GatewayProcess(config_for(endpoints, **tables), directory)
        stack.callback(process.kill)
        started.append(process)
        return process

    yield start
    for process in started:
        end(process)


def end(process: GatewayProcess) -> None:
    """End it, and see that nothing is left open and nothing went wrong."""
    leaked = {}
    if not process.ending:  # one that ends may be gone before it answers
        leaked = process.wait_until_idle()
        process.signal()
    code = process.wait()
    assert not leaked, f"not zero after the test: {leaked}\n{process.output}"
    assert code == 0, process.output
    assert "Traceback" not in process.output, process.output
    assert "restarting" not in process.output, process.output


class Since(GatewayProcess):
    """A gateway that runs already, with counters from zero."""

    def __init__(self, process: GatewayProcess) -> None:
        self.__dict__.update(process.__dict__)
        assert process.wait_until_idle() == {}
        self._before = process.counters()

    def counters(self) -> dict[str, int]:
        return {name: value - self._before[name] for name, value in super().counters().items()}


class Site(NamedTuple):
    """A gateway that all tests of a module share, which speaks TLS, and what it is before: an
    HTTP/1.1 backend that answers with the requests it got."""

    process: GatewayProcess
    web: RawBackend


@pytest.fixture(scope="module")
def shared_site(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """What :func:`site` shows. ``TABLE`` of the module is added to ``[tls.edge]``, ``ROUTES`` are
    those before the last, ``SCRIPT`` is what the backend does."""
    module = request.module
    leaf = authority.leaf()
    entry = leaf.entry(ocsp="file", ocsp_file=str(authority.staple(leaf)))
    web = RawBackend(getattr(module, "SCRIPT", echo))
    config = {"routes": getattr(module, "ROUTES", [])}
    tables = edge(entry, config=config, **getattr(module, "TABLE", {}))
    directory = tmp_path_factory.mktemp("site")
    process = GatewayProcess(config_for([web], cluster=CLUSTER, **tables), directory)
    try:
        yield Site(process, web)
        end(process)
    finally:
        process.kill()
        web.stop()


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The module's gateway and its backend, as if new: counters and connections from zero."""
    process = Since(shared_site.process)
    shared_site.web.connections.clear()
    return Site(process, shared_site.web)


@pytest.fixture
def channel(gateway: StartGateway) -> Iterator[OpenChannel]:
    """Open a channel of its own TCP connection; closed before the gateway is looked at."""
    with ExitStack() as channels:

        def connect(process: GatewayProcess, **options: Any) -> grpc.Channel:
            given = {
                "grpc.use_local_subchannel_pool": 1,
                "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
                "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
                **{f"grpc.{key}": value for key, value in options.items()},
            }
            return channels.enter_context(
                grpc.insecure_channel(process.address, options=tuple(given.items()))
            )

        yield connect


@pytest.fixture
def stub(channel: OpenChannel) -> OpenStub:
    """A stub on a channel of its own: ``stub(process)``."""
    return lambda process, **options: TokensStub(channel(process, **options))


@pytest.fixture
def tool() -> FindTool:
    """The path of a program. Without it the test is skipped, except in CI, where it fails."""

    def find(name: str) -> str:
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
        if path is None:
            reason = f"{name} is not installed"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        return path

    return find
