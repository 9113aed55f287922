"""The protocol of load-balancing policies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from gateway.balance.endpoint import Endpoint
from gateway.balance.request import PickRequest


class Policy(Protocol):
    """Chooses the endpoint of a request among a set that may change at any time.

    Neither method does I/O or counts anything: the caller acquires what was picked.
    """

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """Replaces the set: endpoints come, go and change their weight by this one call.

        Endpoints are matched with those of the last set by their key. Streams in flight stay
        with the Endpoint objects they were picked with; those just are not picked any more.
        """

    def pick(self, request: PickRequest, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """The endpoint for ``request``, or None if no endpoint may be chosen.

        Endpoints that are not available, drain, weigh nothing or are in ``tried`` (those a retry
        has had already) are passed over.
        """
