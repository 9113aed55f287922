"""``gateway demo``: three backends of different speeds, the gateway, clients, and what they saw."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from gateway.demo import secure
from gateway.demo.plain import Handler, Http2Server, Message, response
from gateway.demo.traffic import Record, drive, drive_plain

BACKENDS = {"fast": 4, "medium": 10, "slow": 25}
"""Names of the gRPC backends, and milliseconds that each takes for a token."""
PLAIN_BACKENDS = ("web-1", "web-2")
POLICIES = {"least": "least_connections", "ring": "ring_hash on x-session-id"}
"""The values of ``x-policy`` and what they stand for."""
SESSIONS = 24
ROUNDS = 2
PLAIN_REQUESTS = 40
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 15.0

_CONFIG = """\
[gateway]
workers = 2
drain_timeout = "5s"

[[listeners]]
address = "{address}"

{tls}
# The client chooses the policy, by a field of the request (gRPC metadata).
[[routes]]
match = {{ path_prefix = "/gateway.demo.v1.Tokens/", headers = {{ x-policy = "ring" }} }}
cluster = "ring"

[[routes]]
match = {{ path_prefix = "/gateway.demo.v1.Tokens/" }}
cluster = "least"

# Everything else is plain HTTP/2.
[[routes]]
cluster = "web"

[clusters.ring]
policy = "ring_hash"
hash_on = "metadata:x-session-id"
endpoints = [
{tokens}]

[clusters.least]
policy = "least_connections"
endpoints = [
{tokens}]

[clusters.web]
policy = "round_robin"
endpoints = [
{web}]
"""

_BY_HAND = """
Call it by hand{when}:

  curl --http2-prior-knowledge -i http://{address}/hello

  {python} - <<'END'
  import grpc
  from gateway.demo.tokens_pb2 import Prompt
  from gateway.demo.tokens_pb2_grpc import TokensStub

  calls = TokensStub(grpc.insecure_channel("{address}"))
  metadata = (("x-policy", "ring"), ("x-session-id", "alice"))  # x-policy: ring or least
  for token in calls.Generate(Prompt(tokens=5), metadata=metadata):
      print(token.backend, token.text)
  END

  grpcurl -plaintext -import-path protos -proto gateway/demo/v1/tokens.proto \\
    -H 'x-policy: ring' -H 'x-session-id: alice' -d '{{"tokens": 5}}' \\
    {address} gateway.demo.v1.Tokens/Generate
"""


class DemoError(Exception):
    """The demo can't go on; the message says why."""


def main(*, once: bool) -> int:
    """Run the demo. ``once``: end after the traffic; else stay up until SIGINT or SIGTERM.

    Returns the exit code: 0 if every call was right, 1 if not or if the demo was cut short.
    """
    stop = threading.Event()
    with _stopped_by_signals(stop), ExitStack() as stack:
        try:
            return _run(once, stop, stack)
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1


def _run(once: bool, stop: threading.Event, stack: ExitStack) -> int:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-")))
    children = stack.enter_context(_Children())
    backends = {name: children.backend(name, speed) for name, speed in BACKENDS.items()}
    addresses = {name: children.address_of(child) for name, child in backends.items()}
    for name in PLAIN_BACKENDS:
        server = Http2Server(_echo(name))
        stack.callback(server.stop)
        addresses[name] = server.address
    port = _free_port()
    address = f"127.0.0.1:{port}"
    tls_port, certs = children.certificates(directory / "certs")
    config = directory / "gateway.toml"
    config.write_text(
        _CONFIG.format(
            address=address,
            tls=secure.CONFIG.format(address=f"127.0.0.1:{tls_port}", directory=certs),
            tokens=_endpoints(addresses, BACKENDS),
            web=_endpoints(addresses, PLAIN_BACKENDS),
        )
    )
    print(f"configuration: {config}", flush=True)
    children.gateway(config, port, stop)

    began = time.monotonic()
    records = []
    for policy in POLICIES:
        # Those of ring_hash come over TLS.
        ca = certs / "ca.pem" if policy == "ring" else None
        to = address if ca is None else f"localhost:{tls_port}"
        records += drive(to, policy, sessions=SESSIONS, rounds=ROUNDS, stop=stop, ca=ca)
    records += secure.visit(tls_port, certs / "ca.pem")
    records += drive_plain("127.0.0.1", port, requests=PLAIN_REQUESTS, stop=stop)
    if stop.is_set():
        return 1
    print(f"\n{len(records)} calls from {SESSIONS} clients in {time.monotonic() - began:.1f} s")
    right = report(records)
    when = ", while `gateway demo` runs without --once" if once else ""
    print(_BY_HAND.format(address=address, python=sys.executable, when=when), end="")
    by_hand = secure.BY_HAND.format(
        address=f"localhost:{tls_port}", directory=certs, python=sys.executable, config=config
    )
    print(by_hand, flush=True)
    if not once:
        print("The gateway and its backends stay up until Ctrl-C.", flush=True)
        while not stop.wait(0.5):
            children.check()
    return 0 if right and children.stop() else 1


# -- what is started ---------------------------------------------------------------------------


class _Children:
    """The processes of the demo. On exit the gateway drains first, then the backends end.

    Each has a process group of its own, so that a Ctrl-C of the terminal reaches only the demo and
    the order is kept. Backends also end with their standard input, should the demo be killed.
    """

    def __init__(self) -> None:
        self._children: list[tuple[str, subprocess.Popen[str]]] = []

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def backend(self, name: str, interval_ms: float) -> subprocess.Popen[str]:
        """Start a gRPC backend."""
        options = ("--name", name, "--interval-ms", str(interval_ms), "--stop-with-stdin")
        child = subprocess.Popen(
            [sys.executable, "-m", "gateway.demo.backend", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._children.append((f"backend {name}", child))
        return child

    def address_of(self, child: subprocess.Popen[str]) -> str:
        """Where a backend listens, as it says itself."""
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line.startswith("listening "):
            raise DemoError("a backend did not start; what it said is above")
        return line.split()[1]

    def certificates(self, directory: Path) -> tuple[int, Path]:
        """Make certificates and start their responder: a port for the gateway, and where they
        are."""
        responder_port = _free_port()
        try:
            secure.make_certificates(directory, responder_port)
        except (OSError, subprocess.CalledProcessError) as error:
            raise DemoError(f"no certificates could be made: {error}") from error
        child = subprocess.Popen(
            secure.responder_command(directory, responder_port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._children.append(("OCSP responder", child))
        assert child.stdout is not None
        if not child.stdout.readline():
            raise DemoError("the OCSP responder did not start; what it said is above")
        return _free_port(), directory

    def gateway(self, config: Path, port: int, stop: threading.Event) -> None:
        """Start the gateway and wait until it takes connections."""
        child = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "-c", str(config)],
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._children.append(("gateway", child))
        until = time.monotonic() + START_TIMEOUT_S
        while not stop.wait(0.02):
            self.check()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return
            if time.monotonic() > until:
                raise DemoError(f"the gateway takes no connections on port {port}")

    def check(self) -> None:
        """:exc:`DemoError` if one has ended."""
        for name, child in self._children:
            if child.poll() is not None:
                raise DemoError(f"{name} has ended with exit code {child.returncode}")

    def stop(self) -> bool:
        """End all, the gateway first; whether each ended by itself with exit code 0."""
        codes = []
        while self._children:
            name, child = self._children.pop()
            lived = child.poll() is None
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                print(f"demo: {name} does not end and is killed", file=sys.stderr)
                child.kill()
                child.wait()
            if lived and child.returncode:
                print(f"demo: {name} ended with exit code {child.returncode}", file=sys.stderr)
            codes.append(child.returncode)
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
        return not any(codes)


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _endpoints(addresses: dict[str, str], names: Sequence[str] | dict[str, int]) -> str:
    return "".join(f'  {{ address = "{addresses[name]}" }},  # {name}\n' for name in names)


def _echo(name: str) -> Handler:
    def echo(request: Message) -> Message:
        body = f"{request.get(':method')} {request.get(':path')}\n".encode() + request.body
        fields = (("x-backend", name), ("content-type", "text/plain"))
        return response(200, body, fields)

    return echo


# -- what is printed -----------------------------------------------------------------------------


def report(records: list[Record]) -> bool:
    """Print the tables and the checks; whether all is right."""
    for policy, title in POLICIES.items():
        _print_policy(title, [record for record in records if record.policy == policy])
    plain = [record for record in records if record.policy == "plain"]
    shares = Counter(record.backend for record in plain)
    print(f"\nplain HTTP/2, round_robin: {len(plain)} requests, call {_spread(plain)} ms")
    print("  " + ", ".join(f"{name} {shares[name]}" for name in PLAIN_BACKENDS))

    for kind, title in (("full", "full handshake, staple checked"), ("resumed", "resumed")):
        visits = [record for record in records if record.policy == "tls" and record.kind == kind]
        print(f"TLS, {title}: {len(visits)} connections, first byte {_spread(visits)} ms")

    wrong = [record for record in records if record.wrong]
    sessions: dict[str, set[str]] = {}
    for record in records:
        if record.policy == "ring":
            sessions.setdefault(record.session, set()).add(record.backend)
    sticky = sum(len(names) == 1 for names in sessions.values())
    print()
    checks = [
        (f"{len(records) - len(wrong)} of {len(records)} calls were right", not wrong),
        (
            f"{sticky} of {len(sessions)} sessions of ring_hash stayed on one backend",
            sticky == len(sessions) == SESSIONS,
        ),
    ]
    for text, right in checks:
        print(f"{'ok   ' if right else 'WRONG'} {text}")
    for record in wrong[:10]:
        print(f"      {record.policy}, {record.kind}, {record.session}: {record.wrong}")
    return all(right for _, right in checks)


def _print_policy(title: str, records: list[Record]) -> None:
    kinds = list(dict.fromkeys(record.kind for record in records))
    print(f"\n{title}: {len(records)} calls, {SESSIONS} at the same time; times in ms, p50 / p99")
    heads = ["backend", *kinds, "tokens", "first token", "between tokens", "server stream"]
    rows = [heads]
    for name, speed in [*BACKENDS.items(), ("", 0)]:
        mine = [record for record in records if not name or record.backend == name]
        counts = Counter(record.kind for record in mine)
        rows.append(
            [
                f"{name} ({speed} ms/token)" if name else "all",
                *(str(counts[kind]) for kind in kinds),
                str(sum(record.tokens for record in mine)),
                _quantiles([r.first_token_s for r in mine if r.first_token_s is not None]),
                _quantiles([gap for record in mine for gap in record.gaps_s]),
                _spread([record for record in mine if record.kind == "server stream"]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    for row in rows:
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join([first.strip().ljust(widths[0]), *rest]))


def _spread(records: list[Record]) -> str:
    return _quantiles([record.total_s for record in records])


def _quantiles(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    median, high = (ordered[round(share * (len(ordered) - 1))] * 1000 for share in (0.5, 0.99))
    return f"{median:.1f} / {high:.1f}"
