"""One HTTP/2 connection, either end of it, without I/O (RFC 9113).

The same class is the server of a downstream and the client of an upstream connection.

**In.** :meth:`Connection.receive` walks the frames of what was read. What concerns the connection
goes to its ``handler``; what concerns a stream goes straight to the stream's ``owner``, by direct
call, as it is met. A server's owner gets ``request_*`` calls, a client's ``response_*`` calls, so
that one object can own both ends of a proxied exchange. DATA is handed on as far as it has come,
without waiting for the end of its frame. Every stream ends with exactly one ``*_closed`` call,
unless its owner itself reset it.

**Out.** Everything to be sent gathers in ``out``; the first octet of a turn puts ``token`` on the
``flush_list``, whose reader writes ``out`` to the socket and calls :meth:`Connection.flushed`. DATA
that may not be sent yet (stream window, connection window, or ``out`` above its mark) waits in the
stream's ``pending``, and the owner is told with ``*_drained`` when some of it has moved on.

**Stream states** (section 5.1). A stream object lives from its HEADERS until both halves are
closed or either side resets it::

                        local_closed=False          local_closed=True
    remote_closed=False open                        half-closed (local)
    remote_closed=True  half-closed (remote)        removed: closed

An identifier that is not in ``streams`` is idle above the highest one seen, else closed. Of the
closed ones we remember those that we reset, so that frames still under way to us are let pass;
on others such frames are answered as section 5.1 says.

**Windows.** Octets are given back to the sender of a stream when its owner says that they moved on
(:meth:`Connection.consume`): a stalled reader holds at most one stream window. The window of the
connection is given back at once, so that one stalled stream does not stop its neighbours; a server
withholds it from a client that has more than ``max_connection_window`` octets held.
"""

from __future__ import annotations

from gateway.wire.codec import (
    ENDED,
    LOST,
    OVERFLOW,
    REFUSED,
    RESET,
    STALLED,
    VIOLATION,
    HeldOctets,
    Stream,
    StreamOwner,
)
from gateway.wire.http2.connection import Connection
from gateway.wire.http2.fault import ConnectionFault

__all__ = [
    "ENDED",
    "LOST",
    "OVERFLOW",
    "REFUSED",
    "RESET",
    "STALLED",
    "VIOLATION",
    "Connection",
    "ConnectionFault",
    "HeldOctets",
    "Stream",
    "StreamOwner",
]
