"""A raw HTTP/2 client for conformance tests: sends any bytes, and waits, bounded, for an outcome.

The peer acknowledges the server's SETTINGS and PINGs (unless told not to) and decodes field blocks
with the ``hpack`` library; everything else a test must send itself. Every wait ends after
``patience`` seconds with a :class:`Mismatch` whose text lists what was received until then.

What counts as an outcome follows section 5.4 as conformance suites read it: a connection error is
a GOAWAY with one of the expected codes or a closed connection; a stream error may be answered by
RST_STREAM, or be raised to a connection error.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import hpack

from . import frames
from .frames import Code, Setting, Type

PATIENCE_S = float(os.environ.get("CONFORMANCE_PATIENCE_S", "5"))
ANY = -1
"""Stands for any stream where an outcome names a stream."""

Address = tuple[str, int]


class Mismatch(AssertionError):
    """The server did something else than what was expected, or nothing in time."""


@dataclass(frozen=True)
class Frame:
    """One received frame. ``fields`` is filled on the HEADERS frame of a complete field block."""

    type: int
    flags: int
    stream: int
    payload: bytes
    fields: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def ends_stream(self) -> bool:
        """END_STREAM on a frame that can carry it."""
        return self.type in (Type.DATA, Type.HEADERS) and bool(self.flags & frames.END_STREAM)

    @property
    def is_ack(self) -> bool:
        """ACK on a frame that can carry it."""
        return self.type in (Type.SETTINGS, Type.PING) and bool(self.flags & frames.ACK)

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        start = 4 if self.type == Type.GOAWAY else 0
        return int.from_bytes(self.payload[start : start + 4], "big")

    @property
    def last_stream(self) -> int:
        """The last stream identifier of GOAWAY."""
        return int.from_bytes(self.payload[:4], "big") & frames.MAX_WINDOW

    def __str__(self) -> str:
        name = Type(self.type).name if self.type in list(Type) else f"type {self.type:#x}"
        text = f"{name} stream={self.stream} flags={self.flags:#x} length={len(self.payload)}"
        if self.type in (Type.RST_STREAM, Type.GOAWAY):
            text += f" code={code_name(self.code)}"
        if self.type == Type.GOAWAY:
            text += f" last={self.last_stream} debug={self.payload[8:]!r}"
        if self.fields:
            text += f" {dict(self.fields[:1])}"
        return text


@dataclass
class Response:
    """What has come on one stream; ``status`` is 0 until a final head has come."""

    status: int = 0
    fields: dict[bytes, bytes] = field(default_factory=dict)
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None


class Peer:
    """One connection. ``answer_settings`` False leaves the server's SETTINGS unacknowledged."""

    def __init__(
        self,
        address: Address,
        *,
        patience: float = PATIENCE_S,
        answer_settings: bool = True,
        receive_buffer: int | None = None,
    ) -> None:
        self.address = address
        self.patience = patience
        self.answer_settings = answer_settings
        self.server_settings: dict[int, int] = {}
        self.closed = False
        self.responses: dict[int, Response] = {}
        self.credit: dict[int, int] = {}
        """Octets that WINDOW_UPDATE has added, by stream, 0 being the connection."""
        self._log: list[str] = []
        self._buffer = bytearray()
        self._ready: deque[Frame] = deque()
        self._block = b""
        self._block_head: Frame | None = None
        self._decoder = hpack.Decoder(max_header_list_size=1 << 24)
        self._socket = socket.socket()
        if (
            receive_buffer is not None
        ):  # in octets; has its effect only before the connection is made
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(patience)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def handshake(self, values: Mapping[Setting, int] | None = None) -> Self:
        """Exchange prefaces and have our SETTINGS acknowledged (section 3.4)."""
        chosen = values or {Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW}
        self.send(frames.PREFACE, frames.settings(chosen))
        greeted = acknowledged = False
        while not (greeted and acknowledged):
            got = self.wait(lambda f: f.type == Type.SETTINGS, "the server's SETTINGS and an ACK")
            greeted |= not got.is_ack
            acknowledged |= got.is_ack
        return self

    def send(self, *chunks: bytes) -> None:
        """Send now. A server that has already hung up is not an error here: the wait will tell."""
        try:
            self._socket.settimeout(self.patience)
            self._socket.sendall(b"".join(chunks))
        except (BrokenPipeError, ConnectionResetError):
            self._log.append("(sending failed: the server has closed)")

    def try_send(self, chunk: bytes, patience: float) -> bool:
        """Send without reading; False when the server takes no more for ``patience`` seconds."""
        self._socket.settimeout(patience)
        try:
            self._socket.sendall(chunk)
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            return False
        return True

    def next_frame(self, deadline: float) -> Frame | None:
        """The next frame in order, None once closed. Raises TimeoutError at ``deadline``."""
        while not self._ready and not self.closed:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            try:
                received = self._socket.recv(1 << 18)
            except ConnectionResetError:
                received = b""
            if not received:
                self.closed = True
                self._log.append("(closed)")
            self._buffer += received
            self._split()
        return self._ready.popleft() if self._ready else None

    def wait(self, accept: Callable[[Frame], bool], expected: str) -> Frame:
        """Skip frames until one is accepted. Raises Mismatch on close or after ``patience``."""
        got = self.wait_or_close(accept, expected)
        if got is None:
            raise self.mismatch(expected, "the connection was closed")
        return got

    def wait_or_close(self, accept: Callable[[Frame], bool], expected: str) -> Frame | None:
        """As :meth:`wait`, but a closed connection gives None."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                got = self.next_frame(deadline)
            except TimeoutError:
                raise self.mismatch(expected, f"nothing more in {self.patience:g} s") from None
            if got is None or accept(got):
                return got

    def idle(self, seconds: float) -> None:
        """Let time pass, doing a peer's duties; what comes is skipped. Returns early on a close."""
        deadline = time.monotonic() + seconds
        try:
            while self.next_frame(deadline) is not None:
                pass
        except TimeoutError:
            pass

    def mismatch(self, expected: str, reason: str) -> Mismatch:
        """The failure to raise, with the whole of what was received."""
        history = "\n  ".join(self._log[-40:]) or "(nothing)"
        return Mismatch(f"expected {expected}, but {reason}; received:\n  {history}")

    # Outcomes

    def expect_close(self) -> None:
        """The TCP connection ends, whatever comes before."""
        self.wait_or_close(lambda f: False, "the connection to be closed")

    def expect_goaway(self, *codes: int) -> Frame:
        """A GOAWAY with one of ``codes`` and then the end of the connection."""
        expected = f"GOAWAY {names(codes)}"
        got = self.wait(lambda f: f.type == Type.GOAWAY, expected)
        if got.code not in codes:
            raise self.mismatch(expected, f"the code is {code_name(got.code)}")
        self.expect_close()
        return got

    def expect_connection_error(self, *codes: int) -> None:
        """A connection error: GOAWAY with one of ``codes`` or none, and in any case the end."""
        expected = f"a connection error {names(codes)}"
        got = self.wait_or_close(lambda f: f.type == Type.GOAWAY, expected)
        if got is not None and got.code not in codes:
            raise self.mismatch(expected, f"the code is {code_name(got.code)}")
        self.expect_close()

    def expect_stream_error(self, stream: int, *codes: int) -> None:
        """A stream error, after which the connection lives; or a connection error with the code."""
        expected = f"an error {names(codes)} on stream {'any' if stream == ANY else stream}"
        got = self.wait_or_close(
            lambda f: (
                f.type == Type.GOAWAY
                or (f.type == Type.RST_STREAM and stream in (ANY, f.stream) and f.code in codes)
            ),
            expected,
        )
        if got is None:
            return
        if got.code not in codes:
            raise self.mismatch(expected, f"the code is {code_name(got.code)}")
        if got.type == Type.GOAWAY:
            self.expect_close()
        else:
            self.expect_alive()

    def expect_reset(self, stream: int, *codes: int) -> None:
        """A stream error that stays one: RST_STREAM, and the connection lives."""
        expected = f"RST_STREAM {names(codes)} on stream {stream}"
        response = self.responses.setdefault(stream, Response())
        while response.reset is None:
            self.wait(lambda f: f.stream == stream, expected)
        if response.reset not in codes:
            raise self.mismatch(expected, f"the code is {code_name(response.reset)}")
        self.expect_alive()

    def expect_alive(self, payload: bytes = b"alive?!\0") -> None:
        """A PING is answered."""
        self.send(frames.ping(payload))
        self.expect_ping_ack(payload)

    def expect_ping_ack(self, payload: bytes) -> None:
        """The acknowledgement of a PING that was sent with ``payload``."""
        expected = f"PING ACK {payload!r}"
        self.wait(lambda f: f.type == Type.PING and f.is_ack and f.payload == payload, expected)

    def expect_settings_ack(self) -> None:
        """The acknowledgement of one SETTINGS frame."""
        self.wait(lambda f: f.type == Type.SETTINGS and f.is_ack, "SETTINGS ACK")

    def expect_data(self, stream: int, length: int | None = None) -> Frame:
        """The next DATA frame of ``stream``; its payload must have ``length`` octets if given."""
        expected = f"DATA of {'any' if length is None else length} octets on stream {stream}"
        got = self.wait(lambda f: f.type == Type.DATA and f.stream == stream, expected)
        if length is not None and len(got.payload) != length:
            raise self.mismatch(expected, f"{len(got.payload)} octets came")
        return got

    def expect_head(self, stream: int, status: int | None = None) -> Response:
        """A final response head on ``stream``."""
        expected = f"a response head ({status or 'any status'}) on stream {stream}"
        response = self._until(stream, lambda r: r.status != 0, expected)
        if status is not None and response.status != status:
            raise self.mismatch(expected, f"the status is {response.status}")
        return response

    def expect_response(self, stream: int, status: int | None = None) -> Response:
        """A response on ``stream``, complete."""
        self.expect_head(stream, status)
        return self._until(stream, lambda r: r.ended, f"the end of the response on stream {stream}")

    def get(self, stream: int, path: bytes = b"/") -> Response:
        """A GET request and its complete response."""
        self.send(frames.headers(stream, frames.request(path=path)))
        return self.expect_response(stream)

    # Internals

    def _until(self, stream: int, enough: Callable[[Response], bool], expected: str) -> Response:
        response = self.responses.setdefault(stream, Response())
        while not enough(response):
            if response.reset is not None:
                raise self.mismatch(expected, f"it was reset: {code_name(response.reset)}")
            self.wait(lambda f: f.stream == stream, expected)
        return response

    def _split(self) -> None:
        buffer = self._buffer
        while len(buffer) >= 9:
            length = int.from_bytes(buffer[:3], "big")
            if len(buffer) < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", buffer[3:9])
            got = Frame(kind, flags, stream & frames.MAX_WINDOW, bytes(buffer[9 : 9 + length]))
            del buffer[: 9 + length]
            self._take(got)

    def _take(self, got: Frame) -> None:
        """Do a peer's duties for one frame, then make it visible to the waits."""
        if got.type == Type.SETTINGS and not got.is_ack:
            self.server_settings.update(struct.iter_unpack(">HI", got.payload))
            if self.answer_settings:
                self.send(frames.settings(flags=frames.ACK))
        elif got.type == Type.PING and not got.is_ack:
            self.send(frames.ping(got.payload, frames.ACK))
        elif got.type == Type.WINDOW_UPDATE:
            increment = int.from_bytes(got.payload, "big")
            self.credit[got.stream] = self.credit.get(got.stream, 0) + increment
        elif got.type == Type.HEADERS:
            self._block_head, self._block = got, self._unpadded_block(got)
        elif got.type == Type.CONTINUATION:
            self._block += got.payload
        if got.type in (Type.HEADERS, Type.CONTINUATION):
            if not got.flags & frames.END_HEADERS:
                return
            got = self._decoded()
        elif got.stream and got.type in (Type.DATA, Type.RST_STREAM):
            self._note_body(got)
        self._log.append(str(got))
        self._ready.append(got)

    def _unpadded_block(self, got: Frame) -> bytes:
        payload = got.payload
        if got.flags & frames.PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        return payload[5:] if got.flags & frames.PRIORITY_FLAG else payload

    def _decoded(self) -> Frame:
        head = self._block_head
        assert head is not None, "CONTINUATION from the server without HEADERS"
        fields = tuple((bytes(n), bytes(v)) for n, v in self._decoder.decode(self._block, raw=True))
        response = self.responses.setdefault(head.stream, Response())
        values = dict(fields)
        status = int(values.get(b":status", b"0"))
        if response.status:
            response.trailers = values
        elif status >= 200:
            response.status, response.fields = status, values
        response.ended |= head.ends_stream
        return Frame(head.type, head.flags, head.stream, self._block, fields)

    def _note_body(self, got: Frame) -> None:
        response = self.responses.setdefault(got.stream, Response())
        if got.type == Type.RST_STREAM:
            response.reset = got.code
            return
        body = got.payload
        if got.flags & frames.PADDED:
            body = body[1 : len(body) - body[0]]
        response.body += body
        response.ended |= got.ends_stream


def code_name(code: int) -> str:
    """An error code's name, or its number where it has none."""
    return Code(code).name if code in list(Code) else f"{code:#x}"


def names(codes: tuple[int, ...]) -> str:
    """Error codes for a message."""
    return " or ".join(code_name(code) for code in codes)
