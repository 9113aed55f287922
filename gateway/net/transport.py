"""One connected socket: what is read goes to the codec, what the codec has gathered is written.

Between the two stands the ``channel`` when the connection is encrypted (see
:mod:`gateway.tls.channel`): what was read is ciphertext for it, and what it gives back is the
codec's; on the way out the other way round, once a turn, and not before the socket has taken what
was sealed before, so that the codec still sees how fast its peer reads. Without TLS there is none,
and nothing is paid for it.

Compiled, it calls read and write of the C library: through Python's socket object the two together
cost 1.5 us more, a good part of that for a buffer of 64 KiB each time.

A transport ends in one of two ways: :meth:`Transport.close` at once, or
:meth:`Transport.close_gracefully` after what is in the out-buffer has been written. The latter
shuts down the sending side and reads on for a moment, because a socket closed with unread input
would answer the peer with a reset, and the reset could overtake the GOAWAY that says why.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from select import EPOLLIN
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

if cython.compiled:
    from cython.cimports.libc.errno import EAGAIN, EINTR, errno
    from cython.cimports.posix.unistd import read, write

from gateway.net.reactor import NEVER, PEER_CLOSED, READABLE, WRITABLE, Reactor, Target
from gateway.telemetry import Counter
from gateway.tls.channel import Channel, ChannelError
from gateway.wire.codec import READING, WATCHING, Codec

READ_SIZE: Final = 65_536
LINGER_S: Final = 1.0

TRIM_AFTER_S: Final = 1.0
"""A TLS session that was not used for so long gives back the memory of its buffers."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_TRANSPORTS_OPEN: Final = int(Counter.TRANSPORTS_OPEN)
_READING: int = cython.declare(cython.int, READING)
_WATCHING: int = cython.declare(cython.int, WATCHING)


# What is read in one turn, by one transport after the other: what is kept of it is copied.
_BUFFER: bytearray = cython.declare(bytearray, bytearray(READ_SIZE))
_READ_SIZE: int = cython.declare(cython.Py_ssize_t, READ_SIZE)


@cython.cfunc
def _raise_unless_blocked() -> None:
    """Raise the OSError of the system call that has just failed, unless it is to be tried again."""
    code: cython.int = errno
    if code != EAGAIN and code != EINTR:
        raise OSError(code, os.strerror(code))


class Peer(Protocol):
    """What stands above a transport and its codec."""

    def closed(self, detail: str) -> None:
        """The connection is gone; ``detail`` says why. Called once."""

    def check(self, now: float) -> float:
        """Act on what is overdue; the next deadline."""

    def secured(self, now: float) -> None:
        """The TLS handshake is complete; what came before it was early data."""


class Transport(Target):
    """A non-blocking stream socket, its codec and its peer. Made with :meth:`start`."""

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        stall_timeout_s: float | None,
        *,
        upstream: bool,
    ) -> None:
        self.reactor = reactor
        self.open = True
        self._counters = reactor.counters
        self._in_counter = Counter.UPSTREAM_BYTES_IN if upstream else Counter.DOWNSTREAM_BYTES_IN
        self._out_counter = Counter.UPSTREAM_BYTES_OUT if upstream else Counter.DOWNSTREAM_BYTES_OUT
        self._sock = sock
        self.channel: Channel | None = None
        self.secured = False
        self._upstream = upstream
        self._said_goodbye = False
        self._used_at = NEVER
        self._fd = sock.fileno()
        self._events = READABLE
        self._paused = READING
        self._most = 0
        self._closing = False
        self._lingering = False
        self._linger_until = NEVER
        self._blocked_since = NEVER
        self._stall_timeout = NEVER if stall_timeout_s is None else stall_timeout_s
        self._accounted = 0

    def start(self, codec: Codec, peer: Peer) -> None:
        """Begin to serve. ``codec.out`` is written, ``peer`` is told of the end."""
        self.switch(codec, peer)
        self.reactor.count(_TRANSPORTS_OPEN)
        self.reactor.register(self._fd, self, READABLE)

    def switch(self, codec: Codec, peer: Peer) -> None:
        """Go on with another codec and peer, before anything was written."""
        self.codec = codec
        self.peer = peer
        self._out = codec.out
        if self.channel is None:
            self._wire = codec.out
        self._most = 2 * codec.out_mark
        self.reactor.note(codec.deadline)

    def secure(self, channel: Channel, before: bytes = b"") -> None:
        """Speak TLS from here on; ``before`` is sent in cleartext first."""
        self.channel = channel
        self._wire = bytearray(before) + channel.outgoing()

    def ready(self, events: cython.int, now: cython.double) -> None:
        """Serve epoll's events."""
        if events & WRITABLE:
            self.flush(now)
        if events & READABLE and self.open:
            self._read(now)
        elif events & PEER_CLOSED and self.open:
            self.close("closed by the peer")

    def _receive(self) -> bytes | None:
        """What can be read now; None if that is nothing. Raises OSError."""
        if not cython.compiled:
            try:
                return os.read(self._fd, READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return None
        buffer: cython.p_char = _BUFFER
        n: cython.Py_ssize_t = read(self._fd, buffer, _READ_SIZE)
        if n < 0:
            _raise_unless_blocked()
            return None
        octets: bytes = buffer[:n]
        return octets

    def _transmit(self) -> cython.Py_ssize_t:
        """Write of ``_wire`` what the socket takes; how many octets. Raises OSError."""
        if not cython.compiled:
            try:
                return os.write(self._fd, self._wire)
            except (BlockingIOError, InterruptedError):
                return 0
        wire: cython.p_char = self._wire
        n: cython.Py_ssize_t = write(self._fd, wire, len(self._wire))
        if n < 0:
            _raise_unless_blocked()
            return 0
        return n

    def _read(self, now: cython.double) -> None:
        try:
            data = self._receive()
        except OSError as error:
            self.close(f"connection lost: {error.strerror or error}")
            return
        if data is None:
            return
        if not data:
            channel = self.channel
            if channel is not None and not channel.peer_closed and not self._lingering:
                # Anybody on the way may have ended it (RFC 8446 section 6.1).
                self.close("closed by the peer without close_notify")
            else:
                self._input_ended(now)
            return
        self._counters[self._in_counter] += len(data)
        if self._lingering:
            return
        if self.channel is not None:
            self.unseal(data, now)
        else:
            self.codec.receive(data, now)
        codec = self.codec
        if codec.deadline < self.reactor.next_at:
            self.reactor.next_at = codec.deadline

    def _input_ended(self, now: cython.double) -> None:
        if self._lingering or not self.codec.input_ended(now):
            self._answer_goodbye()
            self.close("closed by the peer")
        else:
            self._listen(len(self._out))

    def _answer_goodbye(self) -> None:
        """Answer a close_notify with one, if the socket takes it at once."""
        channel = self.channel
        if channel is None or not self.secured or self._said_goodbye or self._wire:
            return
        self._said_goodbye = True
        self._wire += channel.close()
        with suppress(OSError):
            self._transmit()

    # -- TLS ---------------------------------------------------------------------------------

    def unseal(self, data: bytes, now: cython.double) -> None:
        """Pass what was read through the channel to the codec."""
        channel = self.channel
        assert channel is not None
        try:
            plaintext: bytes = channel.receive(data)
        except ChannelError as error:
            self._channel_failed(str(error), now)
            return
        self._use(now)
        if not self.secured:
            early: cython.Py_ssize_t = channel.early_octets
            if early:
                self.codec.receive(plaintext[:early], now)
                plaintext = plaintext[early:]
            if channel.established and self.open:
                self.secured = True
                self.peer.secured(now)
            if not self.open:
                return
            # What the handshake has to say, tickets included.
            self.codec.touch()
        if plaintext:
            self.codec.receive(plaintext, now)
        else:
            # A message of TLS itself, which may have an answer (a key update).
            self.codec.touch()
        if channel.peer_closed and self.open:
            self._input_ended(now)

    def _channel_failed(self, detail: str, now: cython.double) -> None:
        """Send the alert and close."""
        self.reactor.count_name("tls_error" if self.secured else "tls_handshake_failed")
        channel = self.channel
        assert channel is not None
        self._wire += channel.outgoing()
        with suppress(OSError):
            if self._wire:
                self._transmit()
        if self.secured or self._upstream:
            self.close(detail)
        else:
            # A reset could overtake the alert.
            self._said_goodbye = True
            self._closing = True
            self._linger(now)

    def _use(self, now: cython.double) -> None:
        if self._used_at == NEVER:
            self.reactor.note(now + TRIM_AFTER_S)
        self._used_at = now

    def _seal(self, now: cython.double) -> None:
        """Make ciphertext of what the codec has gathered, unless some waits already."""
        channel = self.channel
        assert channel is not None
        if self._wire:
            if not self.secured:
                # A handshake goes on behind what waits: nobody else asks for it.
                self._wire += channel.outgoing()
            return
        if self._out and channel.writable:
            self._use(now)
            self._wire += channel.seal(self._out)
            self._out.clear()
        else:
            # The last flight of a handshake, too: its peer may wait for it before it says more.
            self._wire += channel.outgoing()
        if self._closing and not self._out and not self._said_goodbye and not self._is_early():
            self._said_goodbye = True
            self._wire += channel.close()

    def _is_early(self) -> cython.bint:
        """Whether early data was answered, and the handshake is not over: there is no goodbye
        before its end."""
        channel = self.channel
        return channel is not None and not self.secured and channel.writable

    # -- writing -----------------------------------------------------------------------------

    def flush(self, now: cython.double) -> None:
        """Write what the codec has gathered, as far as the socket takes it."""
        codec = self.codec
        codec.dirty = False
        if not self.open:
            return
        if codec.resumable:
            codec.resume(now)
        if self.channel is not None:
            try:
                self._seal(now)
            except ChannelError as error:
                self._channel_failed(str(error), now)
                return
        out: bytearray = self._wire
        size: cython.Py_ssize_t = len(out)
        sent: cython.Py_ssize_t = 0
        if size:
            try:
                sent = self._transmit()
            except OSError as error:
                self.close(f"connection lost: {error.strerror or error}")
                return
            self._counters[self._out_counter] += sent
            if sent == size:
                out.clear()
            elif sent:
                del out[:sent]
        if sent:
            codec.flushed(now)
            size = len(out)
        if self.channel is not None and (self.secured or self.channel.writable):
            size += len(self._out)
        if size or self._accounted:
            self._backlog(size, sent, now)
        elif codec.paused != self._paused:
            self._listen(0)
        if self._closing and not size:
            if self.channel is None or self._said_goodbye:
                self._linger(now)
            elif not self._is_early():
                codec.touch()  # the socket has just taken what was sealed before: now the goodbye
        if codec.deadline < self.reactor.next_at:
            self.reactor.next_at = codec.deadline

    def _backlog(
        self, size: cython.Py_ssize_t, sent: cython.Py_ssize_t, now: cython.double
    ) -> None:
        """Account for what the socket did not take, and wait until it takes more."""
        self.reactor.budget.total += size - self._accounted
        self._accounted = size
        if size == 0:
            self._blocked_since = NEVER
            self._listen(0)
            return
        if sent or self._blocked_since == NEVER:
            self._blocked_since = now
            if self._stall_timeout != NEVER:
                self.reactor.note(now + self._stall_timeout)
        if size > self._most and self._events & EPOLLIN:
            self.reactor.count(Counter.OUT_BUFFER_LIMIT)
        self._listen(size)

    def _listen(self, size: cython.Py_ssize_t) -> None:
        """Wait for what the codec wants, with ``size`` octets to be written.

        DATA stops at the codec's mark. What goes beyond it answers what the peer sends (heads,
        resets, acknowledgements), so a peer that does not read is not read from, either. A
        handshake goes on whatever the codec wants: there is little early data.
        """
        events: cython.int = 0
        self._paused = _READING if self._shakes_hands() else self.codec.paused
        if size <= self._most and (self._paused == _READING or self._closing):
            events = READABLE
        elif self._paused == _WATCHING:
            events = PEER_CLOSED
        if size:
            events |= WRITABLE
        if events != self._events:
            self._events = events
            self.reactor.modify(self._fd, events)

    def _shakes_hands(self) -> cython.bint:
        return self.channel is not None and not self.secured

    def close_gracefully(self) -> None:
        """Write what is gathered, then close."""
        if self.open and not self._closing:
            self._closing = True
            if not self.codec.dirty:
                self.codec.dirty = True
                self.reactor.flush_list.append(self)

    def _linger(self, now: cython.double) -> None:
        if self._lingering:
            return
        self._lingering = True
        self._linger_until = now + LINGER_S
        self.reactor.note(self._linger_until)
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.close(f"connection lost: {error.strerror or error}")

    def close(self, detail: str) -> None:
        """Close at once; every stream of the connection is lost."""
        if not self.open:
            return
        self.open = False
        self.reactor.count(_TRANSPORTS_OPEN, -1)
        self.reactor.budget.total -= self._accounted
        self._accounted = 0
        self.reactor.unregister(self._fd)
        self._sock.close()
        self.codec.lost(detail)
        self.peer.closed(detail)
        # A session holds tens of KiB outside of Python's sight: it must not wait for the collector.
        self.channel = None

    def abort(self, detail: str) -> None:
        """Close at once, with a reset: the peer must not take what it got for the whole."""
        if self.open:
            with suppress(OSError):  # it may be gone already
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.close(detail)

    def fail(self, detail: str) -> None:
        """Close because of a bug of ours."""
        self.close(detail)

    def check(self, now: cython.double) -> cython.double:
        """Act on what is overdue; the next deadline."""
        if not self.open:
            return NEVER
        at: cython.double
        if self._lingering:
            if now >= self._linger_until:
                self.close("closed after the last frame")
                return NEVER
            return self._linger_until
        if self._blocked_since != NEVER and self._stall_timeout != NEVER:
            at = self._blocked_since + self._stall_timeout
            if now >= at:
                self.reactor.count_name("stalled_connection")
                self.close("the peer read nothing for http2.stall_timeout")
                return NEVER
        else:
            at = NEVER
        if self._used_at != NEVER:
            if now >= self._used_at + TRIM_AFTER_S:
                self._used_at = NEVER
                if self.channel is not None:
                    self.channel.trim()
            else:
                at = min(at, self._used_at + TRIM_AFTER_S)
        codec = self.codec
        if now >= codec.deadline:
            codec.check(now)
        above: cython.double = self.peer.check(now)
        if above < at:
            at = above
        return min(at, codec.deadline)

    def __repr__(self) -> str:
        return f"<Transport fd={self._fd} {'open' if self.open else 'closed'} out={len(self._out)}>"
