"""The demo's clients: sessions that call the service in all four ways, and check every answer.

A session is a thread with a connection of its own, so that sessions spread over the gateway's
workers, and an id that goes with each call as ``x-session-id``.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gateway.demo.backend import payload_of
from gateway.demo.plain import Http2Client
from gateway.demo.tokens_pb2 import Failure, Prompt, Token
from gateway.demo.tokens_pb2_grpc import TokensStub

CALL_TIMEOUT_S = 15.0
PAYLOAD_BYTES = 64


@dataclass
class Record:
    """One call: who served it, when things came (seconds), and what was wrong (empty: nothing)."""

    policy: str
    kind: str
    session: str
    backend: str = ""
    tokens: int = 0
    total_s: float = 0.0
    first_token_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    wrong: str = ""


class _WrongAnswerError(Exception):
    """An answer is not what it should be."""


def drive(
    address: str,
    policy: str,
    *,
    sessions: int,
    rounds: int,
    stop: threading.Event,
    ca: Path | None = None,
) -> list[Record]:
    """Run ``sessions`` at the same time, each with ``rounds`` of every kind of call.

    ``policy`` goes with each call as ``x-policy``. With ``ca`` (a PEM file) they speak TLS. Ends
    early when ``stop`` is set.
    """
    roots = None if ca is None else ca.read_bytes()

    def session(number: int) -> list[Record]:
        calls = _Session(address, policy, f"session-{number}", roots)
        with calls:
            return [calls.call(kind) for _ in range(rounds) for kind in KINDS if not stop.is_set()]

    with ThreadPoolExecutor(sessions, thread_name_prefix=policy) as pool:
        return [record for records in pool.map(session, range(sessions)) for record in records]


def drive_plain(host: str, port: int, *, requests: int, stop: threading.Event) -> list[Record]:
    """Plain HTTP/2 on one connection: GET and POST in turn, one after another."""
    records: list[Record] = []
    try:
        with Http2Client(host, port, CALL_TIMEOUT_S) as client:
            while len(records) < requests and not stop.is_set():
                records.append(_plain(client, len(records)))
    except OSError as error:
        records.append(Record("plain", "", "", wrong=str(error)))
    return records


def _plain(client: Http2Client, number: int) -> Record:
    method, body = ("POST", b"ping %d" % number) if number % 2 else ("GET", b"")
    record = Record("plain", method, "")
    began = time.monotonic()
    answer = client.request(method, f"/echo?{number}", body=body)
    record.total_s = time.monotonic() - began
    record.backend = answer.get("x-backend") or ""
    if answer.status != 200 or answer.body != f"{method} /echo?{number}\n".encode() + body:
        record.wrong = f"status {answer.status}, body {bytes(answer.body)!r}"
    return record


class _Session:
    """One client; a context manager that closes its connection."""

    def __init__(self, address: str, policy: str, name: str, roots: bytes | None) -> None:
        self.policy = policy
        self.name = name
        self._metadata = (("x-policy", policy), ("x-session-id", name))
        # A pool of its own: otherwise all channels to one address share a connection.
        options = (("grpc.use_local_subchannel_pool", 1),)
        if roots is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(roots)
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._calls: Any = TokensStub(self._channel)

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, kind: str) -> Record:
        """Make one call and check it."""
        record = Record(self.policy, kind, self.name)
        began = time.monotonic()
        try:
            KINDS[kind](self, record, began)
        except grpc.RpcError as error:
            status: Any = error
            record.wrong = f"{status.code().name}: {status.details()}"
        except _WrongAnswerError as error:
            record.wrong = str(error)
        record.total_s = time.monotonic() - began
        return record

    def complete(self, record: Record, began: float) -> None:
        payload = record.session.encode() * 100
        answer, call = self._calls.Complete.with_call(
            Prompt(tokens=4, payload_bytes=PAYLOAD_BYTES, payload=payload), **self._options()
        )
        record.backend, record.tokens = answer.backend, answer.tokens
        _check("tokens", answer.tokens, 4)
        _check("payload", answer.payload, b"".join(payload_of(n, PAYLOAD_BYTES) for n in range(4)))
        _check("request", answer.request_crc, zlib.crc32(payload))
        _check("x-tokens", dict(call.trailing_metadata()).get("x-tokens"), "4")

    def generate(self, record: Record, began: float) -> None:
        prompt = Prompt(tokens=16, payload_bytes=PAYLOAD_BYTES)
        stream = self._calls.Generate(prompt, **self._options())
        self._take(stream, record, began, [16])

    def collect(self, record: Record, began: float) -> None:
        sent = [Token(index=n, payload=payload_of(n, 1000)) for n in range(20)]
        summary = self._calls.Collect(iter(sent), **self._options())
        record.backend, record.tokens = summary.backend, summary.tokens
        _check("tokens", summary.tokens, 20)
        _check("crc", summary.crc, zlib.crc32(b"".join(token.payload for token in sent)))

    def chat(self, record: Record, began: float) -> None:
        answered = threading.Semaphore(1)

        def prompts() -> Iterator[Prompt]:
            for _ in range(3):
                answered.acquire(timeout=CALL_TIMEOUT_S)
                yield Prompt(tokens=5, payload_bytes=PAYLOAD_BYTES)

        stream = self._calls.Chat(prompts(), **self._options())
        self._take(stream, record, began, [5, 5, 5], answered.release)

    def fail(self, record: Record, began: float) -> None:
        """A call whose right answer is an error, sent after two tokens."""
        failure = Failure(code=8, message="über quota: 100%", details=["why"], after_tokens=2)
        prompt = Prompt(tokens=4, payload_bytes=PAYLOAD_BYTES, failure=failure)
        stream = self._calls.Generate(prompt, **self._options())
        try:
            self._take(stream, record, began, [2])
        except grpc.RpcError as error:
            status: Any = error
            _check("status", status.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            _check("message", status.details(), "über quota: 100%")
            if b"why" not in dict(status.trailing_metadata()).get("grpc-status-details-bin", b""):
                raise _WrongAnswerError("the error's details are lost") from error
        else:
            raise _WrongAnswerError("the error is lost")

    def _take(
        self,
        stream: Any,
        record: Record,
        began: float,
        counts: Sequence[int],
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a stream's tokens: for each of ``counts``, so many, numbered from 0."""
        record.backend = dict(stream.initial_metadata()).get("x-backend", "")
        last = None
        indexes = []
        for token in stream:
            now = time.monotonic()
            if last is None:
                record.first_token_s = now - began
            elif token.index:  # a first token also waited for its prompt
                record.gaps_s.append(now - last)
            last = now
            indexes.append(token.index)
            _check("payload", token.payload, payload_of(token.index, PAYLOAD_BYTES))
            _check("backend", token.backend, record.backend)
            if token.index == counts[0] - 1:
                answered()
        record.tokens = len(indexes)
        _check("tokens", indexes, [index for count in counts for index in range(count)])

    def _options(self) -> dict[str, Any]:
        return {"metadata": self._metadata, "timeout": CALL_TIMEOUT_S}


KINDS: dict[str, Callable[[_Session, Record, float], None]] = {
    "unary": _Session.complete,
    "server stream": _Session.generate,
    "client stream": _Session.collect,
    "bidi": _Session.chat,
    "error": _Session.fail,
}


def _check(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise _WrongAnswerError(f"{what}: got {got!r}, expected {expected!r}"[:200])
