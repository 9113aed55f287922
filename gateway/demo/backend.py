"""The demo's model server: the service of ``tokens.proto`` on grpcio, as fast as it is told to be.

``python -m gateway.demo.backend --name fast --interval-ms 5`` prints ``listening ADDRESS`` and
serves until SIGINT or SIGTERM. Tests run the same :class:`Backend` inside their own process, to see
what the server saw: each call is handed to an observer as it begins (:class:`Call`).

Threads, not grpc.aio: a handler that waits on :attr:`Call.ended` between two tokens learns of a
cancel at once, and a server in threads shares a process with a blocking client without an event
loop of its own.
"""

from __future__ import annotations

import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import click
import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import DebugInfo
from google.rpc.status_pb2 import Status

from gateway.demo.tokens_pb2 import Completion, Failure, Metadata, Prompt, Summary, Token
from gateway.demo.tokens_pb2_grpc import TokensServicer, add_TokensServicer_to_server

MAX_MESSAGE_BYTES = 64 << 20
MAX_CALLS = 512
"""Calls served at the same time, a thread each; more wait."""

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "open", "gate")
CODES = {code.value[0]: code for code in grpc.StatusCode}
DETAILS_KEY = "grpc-status-details-bin"

ECHO_INITIAL = "x-echo-initial"
"""Request metadata of this key comes back as initial metadata; so does ``x-echo-initial-bin``."""
ECHO_TRAILING = "x-echo-trailing"
"""Request metadata of this key comes back as trailing metadata; so does ``x-echo-trailing-bin``."""

Pairs = tuple[tuple[str, str | bytes], ...]


def payload_of(index: int, size: int) -> bytes:
    """The filling of token ``index``: ``size`` bytes that differ from its neighbours'."""
    return bytes((index % 251,)) * size


class Call:
    """One call as the server saw it.

    ``remaining_s`` is the time to the deadline when the call began, None without a deadline.
    ``ended`` is set when the call is over for whatever reason; ``served`` tells whether the
    handler came to its own end (an answer or an asked-for failure), so a call that has ended
    and was not served had been cancelled.
    """

    def __init__(self, method: str, context: grpc.ServicerContext) -> None:
        self.method = method
        self.peer: str = context.peer()
        self.metadata: Pairs = tuple((key, value) for key, value in context.invocation_metadata())
        # Without a deadline grpcio tells either None or the time to the end of the epoch.
        remaining = context.time_remaining()
        self.remaining_s = None if remaining is None or remaining > 1e7 else remaining
        self.served = False
        self.ended = threading.Event()
        if not context.add_callback(self.ended.set):
            self.ended.set()

    def get(self, key: str) -> str | bytes | None:
        """The first value of metadata ``key``, or None."""
        return next((value for name, value in self.metadata if name == key), None)

    def values(self, key: str) -> list[str | bytes]:
        """All values of metadata ``key``, in order."""
        return [value for name, value in self.metadata if name == key]


class Tokens(TokensServicer):
    """The service. ``interval_s`` is the pause between two tokens where a prompt asks for none."""

    def __init__(
        self, name: str, interval_s: float = 0.0, observer: Callable[[Call], None] | None = None
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self._observer = observer

    def Complete(self, request: Prompt, context: grpc.ServicerContext) -> Completion:  # noqa: N802
        call = self._begin("Complete", context)
        tokens = list(self._tokens(request, call))
        self._finish(request, call, context, len(tokens))
        remaining = -1 if call.remaining_s is None else round(call.remaining_s * 1000)
        return Completion(
            text=" ".join(token.text for token in tokens),
            tokens=len(tokens),
            payload=b"".join(token.payload for token in tokens),
            backend=self.name,
            metadata=[
                Metadata(key=key, value=value.encode() if isinstance(value, str) else value)
                for key, value in call.metadata
            ],
            remaining_ms=remaining,
            request_bytes=len(request.payload),
            request_crc=zlib.crc32(request.payload),
        )

    def Generate(self, request: Prompt, context: grpc.ServicerContext) -> Iterator[Token]:  # noqa: N802
        call = self._begin("Generate", context)
        count = 0
        for token in self._tokens(request, call):
            yield token
            count += 1
        self._finish(request, call, context, count)

    def Collect(  # noqa: N802
        self, request_iterator: Iterator[Token], context: grpc.ServicerContext
    ) -> Summary:
        call = self._begin("Collect", context)
        tokens = size = crc = 0
        for token in request_iterator:
            tokens += 1
            size += len(token.payload)
            crc = zlib.crc32(token.payload, crc)
        self._finish(Prompt(), call, context, tokens)
        return Summary(tokens=tokens, bytes=size, backend=self.name, crc=crc)

    def Chat(  # noqa: N802
        self, request_iterator: Iterator[Prompt], context: grpc.ServicerContext
    ) -> Iterator[Token]:
        call = self._begin("Chat", context)
        count = 0
        for prompt in request_iterator:
            for token in self._tokens(prompt, call):
                yield token
                count += 1
            if prompt.HasField("failure"):
                self._fail(prompt.failure, call, context)
            if prompt.last:
                break
        self._finish(Prompt(), call, context, count)

    def _begin(self, method: str, context: grpc.ServicerContext) -> Call:
        call = Call(method, context)
        if self._observer is not None:
            self._observer(call)
        # At once, not with the first token: the head tells who serves, however slow it is.
        context.send_initial_metadata((("x-backend", self.name), *_echoed(call, ECHO_INITIAL)))
        return call

    def _tokens(self, prompt: Prompt, call: Call) -> Iterator[Token]:
        asked = prompt.HasField("interval_ms")
        interval_s = prompt.interval_ms / 1000 if asked else self.interval_s
        count = prompt.tokens
        if prompt.HasField("failure"):
            count = min(count, prompt.failure.after_tokens)
        if call.ended.wait(prompt.sleep_ms / 1000):
            return
        for index in range(count):
            if index and interval_s and call.ended.wait(interval_s):
                return
            yield Token(
                index=index,
                text=WORDS[index % len(WORDS)],
                payload=payload_of(index, prompt.payload_bytes),
                backend=self.name,
            )

    def _finish(
        self, prompt: Prompt, call: Call, context: grpc.ServicerContext, count: int
    ) -> None:
        if prompt.HasField("failure"):
            self._fail(prompt.failure, call, context)
        call.served = not call.ended.is_set()
        context.set_trailing_metadata(
            (("x-tokens", str(count)), *_echoed(call, ECHO_TRAILING)),
        )

    def _fail(self, failure: Failure, call: Call, context: grpc.ServicerContext) -> NoReturn:
        trailing = [("x-backend", self.name), *_echoed(call, ECHO_TRAILING)]
        if failure.details:
            detail = AnyMessage()
            detail.Pack(DebugInfo(stack_entries=failure.details, detail=self.name))
            status = Status(code=failure.code, message=failure.message, details=[detail])
            trailing.append((DETAILS_KEY, status.SerializeToString()))
        context.set_trailing_metadata(tuple(trailing))
        call.served = not call.ended.is_set()
        context.abort(CODES[failure.code], failure.message)


class Backend:
    """A server of :class:`Tokens` on ``host``; ``port`` 0 takes a free one. Started at once."""

    def __init__(
        self,
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        interval_s: float = 0.0,
        observer: Callable[[Call], None] | None = None,
        options: Sequence[tuple[str, object]] = (),
    ) -> None:
        self.name = name
        self._server = grpc.server(
            ThreadPoolExecutor(MAX_CALLS, thread_name_prefix=name),
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                *options,
            ),
        )
        add_TokensServicer_to_server(Tokens(name, interval_s, observer), self._server)
        self.port = self._server.add_insecure_port(f"{host}:{port}")
        self.address = f"{host}:{self.port}"
        self._server.start()

    def stop(self, grace_s: float | None = None) -> None:
        """Stop accepting, give calls ``grace_s`` seconds (None: none) and return when all ended."""
        self._server.stop(grace_s).wait()


def _echoed(call: Call, key: str) -> Iterator[tuple[str, str | bytes]]:
    return ((name, value) for name, value in call.metadata if name in (key, f"{key}-bin"))


def _wait_for_end_of_stdin(stop: threading.Event) -> None:
    # Not through sys.stdin: at exit its lock would still be held by this thread.
    while os.read(0, 4096):
        pass
    stop.set()


@click.command(help="Serve gateway.demo.v1.Tokens until SIGINT or SIGTERM.")
@click.option("--name", default="backend", show_default=True, help="Who answers say they are from.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, show_default=True, help="0 takes a free port.")
@click.option("--interval-ms", default=0.0, show_default=True, help="Pause between two tokens.")
@click.option("--stop-with-stdin", is_flag=True, help="Stop at the end of standard input, too.")
def main(name: str, host: str, port: int, interval_ms: float, stop_with_stdin: bool) -> None:
    """Entry point of ``python -m gateway.demo.backend``."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        backend = Backend(name, host=host, port=port, interval_s=interval_ms / 1000)
    except RuntimeError as error:
        raise click.ClickException(f"can't listen on {host}:{port}: {error}") from error
    print(f"listening {backend.address}", flush=True)
    if stop_with_stdin:
        threading.Thread(target=_wait_for_end_of_stdin, args=(stop,), daemon=True).start()
    stop.wait()
    backend.stop(grace_s=1.0)


if __name__ == "__main__":
    main()
