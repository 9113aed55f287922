"""The Trio side of the reactor: when to serve sockets, when to let Trio's own tasks run."""

from __future__ import annotations

from typing import Final

import trio

from gateway.net.reactor import Reactor

POLL_S: Final = 0.001
"""While traffic flows the reactor waits this long in its own epoll: cheaper than a trip to Trio."""

TRIO_INTERVAL_S: Final = 0.005
"""Under load Trio's tasks (timers, signals, look-ups) run at least this often."""


async def serve(reactor: Reactor) -> None:
    """Serve the reactor's sockets until cancelled."""
    epoll_fd = reactor.fileno()
    while True:
        until = reactor.now + TRIO_INTERVAL_S
        busy = reactor.turn(0.0)
        while busy and reactor.now < until:
            busy = reactor.turn(POLL_S)
        if busy:
            await trio.lowlevel.checkpoint()
            continue
        delay = reactor.next_at - reactor.now
        if delay <= 0.0:
            # Overdue, but the last sweep is only just over.
            delay = TRIO_INTERVAL_S
        with trio.move_on_after(delay):
            await trio.lowlevel.wait_readable(epoll_fd)
