"""The seam where TLS plugs in between transport and codec.

In a turn of the reactor each ready transport is read once, and what was read goes to
``codec.receive()``. A transport that has a channel passes the octets through it on both ways::

    socket -> transport -> channel.receive() -> codec.receive()
    socket <- transport <- channel.seal()    <- codec's out-buffer, once per flush

A cleartext transport has none: the place costs one test for None per read and per flush.

A channel does no I/O and never blocks. It can have something to send without being given
plaintext (handshake, alerts, answers to key updates): after each call the transport takes
:meth:`Channel.outgoing` and sends it before anything sealed later.
"""

from __future__ import annotations

from typing import Protocol


class ChannelError(Exception):
    """The TLS session is lost; the message names the cause.

    The transport sends :meth:`Channel.outgoing` (the alert) and closes.
    """


class Channel(Protocol):
    """One TLS session, client or server side, on memory.

    ``early_octets`` says how many octets at the beginning of what :meth:`receive` gave last are
    early data (RFC 8446 section 2.3): anybody may have sent them again. ``peer_closed`` is true
    once the peer's close_notify came; an end of the input without it may be an attacker's doing.
    """

    early_octets: int
    peer_closed: bool

    @property
    def established(self) -> bool:
        """True from the end of the handshake on."""

    @property
    def writable(self) -> bool:
        """Whether :meth:`seal` makes ciphertext now: established, or answering early data."""

    @property
    def alpn(self) -> bytes | None:
        """The protocol chosen by ALPN (RFC 7301), ``b"h2"`` for instance; None if none was.

        It is known once :attr:`established` is true, or early data came.
        """

    def receive(self, ciphertext: bytes | memoryview) -> bytes:
        """Take octets of the peer, however cut, and return the plaintext they complete.

        Empty while the handshake goes on. ``ciphertext`` may be a view of a shared buffer and is
        not kept. Raises ChannelError.
        """

    def seal(self, plaintext: bytes | bytearray) -> bytes:
        """Return the ciphertext of ``plaintext``, all of it, and what :meth:`outgoing` would give.

        Only while :attr:`writable`. Raises ChannelError.
        """

    def outgoing(self) -> bytes:
        """Take what the session itself has to send; empty most of the time."""

    def close(self) -> bytes:
        """Return the octets of close_notify (RFC 8446 section 6.1); nothing is sealed after."""

    def trim(self) -> None:
        """Give back memory that only a busy session needs."""
