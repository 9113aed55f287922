"""The seam where TLS plugs in between transport and codec.

In a turn of the reactor each ready transport is read once, and what was read goes to
``protocol.receive()``. A transport that has a channel passes the octets through it on both ways::

    socket -> transport -> channel.receive() -> protocol.receive()
    socket <- transport <- channel.seal()    <- protocol's out-buffer, once per flush

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
    """One TLS session, client or server side, on memory."""

    @property
    def established(self) -> bool:
        """True from the end of the handshake on."""

    @property
    def alpn(self) -> bytes | None:
        """The protocol chosen by ALPN (RFC 7301), ``b"h2"`` for instance; None if none was.

        It is known once :attr:`established` is true.
        """

    def receive(self, ciphertext: bytes | memoryview) -> bytes:
        """Take octets of the peer, however cut, and return the plaintext they complete.

        Empty while the handshake goes on. ``ciphertext`` may be a view of a shared buffer and is
        not kept. Raises ChannelError.
        """

    def seal(self, plaintext: bytes | memoryview) -> bytes:
        """Return the ciphertext of ``plaintext``, all of it. Raises ChannelError.

        Before :attr:`established` the plaintext is kept, and its ciphertext comes with
        :meth:`outgoing` as soon as there is a key.
        """

    def outgoing(self) -> bytes:
        """Take what the session itself has to send; empty most of the time."""

    def close(self) -> bytes:
        """Return the octets of close_notify (RFC 8446 section 6.1); nothing is sealed after."""
