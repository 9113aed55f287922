"""Servers that misbehave in one way each, on raw sockets and the ``h2`` library.

The well-behaved ones are :class:`gateway.demo.backend.Backend` (grpcio) and
:class:`gateway.demo.plain.Http2Server`.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter

import h2.errors
import h2.events
from hyperframe.frame import GoAwayFrame, SettingsFrame

from gateway.demo.plain import Http2Connection, Http2Server, Message, response
from gateway.demo.tokens_pb2 import Completion, Prompt, Token

GRPC_HEADERS = (("content-type", "application/grpc"),)


def grpc_message(message: Completion | Prompt | Token) -> bytes:
    """A message with its length prefix."""
    data: bytes = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


def grpc_response(name: str, *, status: int = 0) -> Message:
    """What a server called ``name`` answers to ``Complete``."""
    body = grpc_message(Completion(text="scripted", backend=name)) if status == 0 else b""
    return response(200, body, GRPC_HEADERS, [("grpc-status", str(status))])


class RefusingPort:
    """An address that refuses connections: bound, so that nobody else gets it, not listening."""

    def __init__(self) -> None:
        self._sock = socket.socket()
        self._sock.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._sock.getsockname()[1]}"

    def stop(self) -> None:
        """Free the port."""
        self._sock.close()


class NeverReadingPort:
    """Accepts connections and never reads nor writes; ``accepted`` is set by the first."""

    def __init__(self) -> None:
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self._accepted: list[socket.socket] = []
        self.accepted = threading.Event()
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close everything."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for sock in self._accepted:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._accepted.append(sock)
            self.accepted.set()


class ScriptedServer(Http2Server):
    """Answers ``Complete`` calls in its own ``name``, through a connection class that misbehaves.

    ``seen`` are the requests that were answered, ``connections`` all that were accepted, in order.
    What else a connection notes is counted in ``events``.
    """

    def __init__(self, name: str, connection: type[Http2Connection] = Http2Connection) -> None:
        self.name = name
        self.seen: list[Message] = []
        self.changed = threading.Condition()
        self.events: Counter[str] = Counter()
        self.stopping = threading.Event()
        super().__init__(self._answer, connection=connection)

    def stop(self) -> None:
        """Let go of connections that wait, and stop."""
        self.stopping.set()
        super().stop()

    def note(self, event: str) -> None:
        """Count ``event`` and wake who waits for it."""
        with self.changed:
            self.events[event] += 1
            self.changed.notify_all()

    def wait(self, event: str, count: int = 1, timeout_s: float = 20.0) -> None:
        """Return when ``event`` happened ``count`` times; TimeoutError if it does not."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.events[event] >= count, timeout_s):
                raise TimeoutError(f"{self.name}: {event} came {self.events[event]} times")

    def _answer(self, request: Message) -> Message:
        self.seen.append(request)
        return grpc_response(self.name)


class _Scripted(Http2Connection):
    """What the misbehaving connections share."""

    server: ScriptedServer

    @property
    def is_first(self) -> bool:
        """Whether this is the server's first connection."""
        return self.server.connections[0] is self

    def on_request_head(self, stream_id: int) -> None:
        self.server.note("head")

    def on_reset(self, stream_id: int) -> None:
        super().on_reset(stream_id)
        self.server.note("reset")

    def goaway(self, last_stream_id: int, code: int = 0) -> None:
        """Send GOAWAY past the library, which would take it for the end of the connection."""
        frame = GoAwayFrame(0)
        frame.last_stream_id = last_stream_id
        frame.error_code = code
        with self.lock:
            self.flush()
            self.sock.sendall(frame.serialize())


class Silent(_Scripted):
    """Reads everything and never answers."""

    def on_request(self, stream_id: int) -> None:
        self.server.note("request")


class DiesMidStream(_Scripted):
    """Answers with a head and one message, then the TCP connection is reset."""

    abort = True

    def on_request(self, stream_id: int) -> None:
        body = grpc_message(Token(text="last words", backend=self.server.name))
        self.h2.send_headers(stream_id, [(":status", "200"), *GRPC_HEADERS])
        self.h2.send_data(stream_id, body)
        self.flush()
        self.close(abort=self.abort)


class ClosesMidStream(DiesMidStream):
    """Answers with a head and one message, then the TCP connection is closed with FIN."""

    abort = False


class GoesAway(_Scripted):
    """Its first connection waits for three requests and processes only the first of them.

    The others are above the GOAWAY's last stream id. Later connections are well-behaved.
    """

    def on_request(self, stream_id: int) -> None:
        if not self.is_first:
            super().on_request(stream_id)
            return
        if len(self.requests) == 3:
            first = min(self.requests)
            self.goaway(first)
            for other in [other for other in self.requests if other != first]:
                self.forget(other)
            super().on_request(first)


class GoesAwayInTwoSteps(_Scripted):
    """Its first connection says at the second request that it is going, and still serves both.

    RFC 9113 section 6.8: GOAWAY with the highest stream id, a PING, then the real last stream id.
    """

    def on_request(self, stream_id: int) -> None:
        if not self.is_first or len(self.requests) != 2:
            if not self.is_first:
                super().on_request(stream_id)
            return
        self.goaway(2**31 - 1)
        self.h2.ping(b"graceful")

    def on_event(self, event: h2.events.Event) -> None:
        super().on_event(event)
        if isinstance(event, h2.events.PingAckReceived) and self.is_first:
            served = sorted(self.requests)
            self.goaway(served[-1])
            for stream_id in served:
                self.respond(stream_id, self.server.handler(self.requests[stream_id]))
            self.close()


class RefusesStreams(_Scripted):
    """Resets every request with REFUSED_STREAM."""

    code = h2.errors.ErrorCodes.REFUSED_STREAM

    def on_request(self, stream_id: int) -> None:
        self.server.note("refused")
        self.reset(stream_id, self.code)


class RefusesOnRelease(_Scripted):
    """Resets with REFUSED_STREAM what it holds, when :meth:`release` is called."""

    def on_request(self, stream_id: int) -> None:
        self.server.note("request")

    def release(self) -> None:
        """Refuse all held requests."""
        with self.lock:
            for stream_id in list(self.requests):
                self.reset(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)


class ResetsInternal(RefusesStreams):
    """Resets every request with INTERNAL_ERROR."""

    code = h2.errors.ErrorCodes.INTERNAL_ERROR


class ResetsCancel(RefusesStreams):
    """Resets every request with CANCEL."""

    code = h2.errors.ErrorCodes.CANCEL


class ResetsCalm(RefusesStreams):
    """Resets every request with ENHANCE_YOUR_CALM."""

    code = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


class ResetsSecurity(RefusesStreams):
    """Resets every request with INADEQUATE_SECURITY."""

    code = h2.errors.ErrorCodes.INADEQUATE_SECURITY


class NeverOpensWindow(_Scripted):
    """Takes requests and never gives receive window back, so that large ones stall for ever."""

    def start(self) -> None:
        self.h2.initiate_connection()
        self.flush()

    def on_flow_controlled(self, stream_id: int, length: int) -> None:
        self.server.note("data")


class AnswersEarly(_Scripted):
    """Answers at the request's head and then asks the client to stop: RST_STREAM(NO_ERROR)."""

    def on_request_head(self, stream_id: int) -> None:
        super().on_request_head(stream_id)
        self.respond(stream_id, grpc_response(self.server.name))
        self.h2.reset_stream(stream_id, h2.errors.ErrorCodes.NO_ERROR)

    def on_request(self, stream_id: int) -> None:
        """It has been answered."""


class BadResponse(_Scripted):
    """Answers with a field name that RFC 9113 section 8.2.1 forbids."""

    def on_request(self, stream_id: int) -> None:
        self.h2.config.validate_outbound_headers = False
        self.h2.config.normalize_outbound_headers = False
        self.h2.send_headers(stream_id, [(":status", "200"), ("Bad Name", "x")], end_stream=True)


class OneStreamOnly(_Scripted):
    """Allows one stream at a time on each connection, and refuses those above it.

    A client that has not seen the SETTINGS yet may open more (RFC 9113 section 5.1.2), so the
    library, which would take that for a connection error, is not told of the limit.
    """

    def start(self) -> None:
        super().start()
        settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1}
        self.sock.sendall(SettingsFrame(settings=settings).serialize())

    def on_request_head(self, stream_id: int) -> None:
        if len(self.requests) > 1:
            self.server.note("refused")
            self.reset(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)


class StopsReading(_Scripted):
    """Reads until the first request has come, and then neither reads nor writes."""

    def on_request(self, stream_id: int) -> None:
        self.server.stopping.wait()


class ClosesAtOnce(_Scripted):
    """Closes the connection when a request has come."""

    def on_request(self, stream_id: int) -> None:
        self.close()


class OneSilentStream(OneStreamOnly):
    """Allows one stream at a time, and never answers it."""

    def on_request(self, stream_id: int) -> None:
        self.server.note("request")


class FullPort:
    """A listening socket whose queue is full: the kernel drops further SYNs."""

    def __init__(self) -> None:
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(0)
        address = self._listening.getsockname()
        self.address = f"127.0.0.1:{address[1]}"
        self._clients = [socket.socket() for _ in range(4)]
        for client in self._clients:
            client.setblocking(False)
            client.connect_ex(address)

    def stop(self) -> None:
        """Close everything."""
        for sock in (*self._clients, self._listening):
            sock.close()
