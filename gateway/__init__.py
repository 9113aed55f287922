"""An API gateway on Trio for HTTP/1.1, HTTP/2 and gRPC streams.

The journey of a request:

1. :mod:`gateway.net` accepts a connection; a transport is registered with the reactor. What comes
   first tells whether HTTP/1.1 or HTTP/2 is spoken.
2. A turn: each transport that is ready is read once into a shared buffer, and the codec gets the
   bytes: ``protocol.receive(data)``. (TLS, when it comes, sits between the two.)
3. :mod:`gateway.wire` walks what was read, and makes a request head of it; the downstream side of
   :mod:`gateway.proxy` makes an exchange of that.
4. :mod:`gateway.routing` finds the route; the policy of its cluster (:mod:`gateway.balance`) picks
   an endpoint, whose in-flight count rises here, before dispatch; :mod:`gateway.upstream` gives a
   stream on an open connection, or the exchange waits in the pool's queue while one is dialled.
5. The head is encoded again for the upstream connection. From here DATA is spliced: the upstream
   codec appends to the peer transport's out-buffer by direct call. A receive window is given back
   only as the other side drains it, so a stalled reader holds at most one window of bytes, once.
6. The response comes back the same way. Trailers end it. :mod:`gateway.telemetry` counts.
7. End of turn: each touched transport is flushed once with everything that gathered.

A cancel travels the same road at once: RST_STREAM or a lost connection downstream resets the
upstream stream in the same turn. An upstream failure becomes a response in one place only,
:mod:`gateway.proxy.rescue`.

The levels, what each may import and why it is built this way: ``docs/architecture.md``.
"""

from __future__ import annotations

__version__ = "0.1.0"
