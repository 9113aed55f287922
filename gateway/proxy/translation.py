"""What stands between an exchange and its client when the message must change on the way.

A :class:`Translation` is a codec to the exchange and the owner of the client's stream (its
:attr:`Translation.ear`) to the wire, so neither knows of it and all else goes its usual way. There
is one for a stream that needs it, and none for the others.

**Credit.** Both sides count octets, and here their numbers differ. What one side may send again is
given back in proportion to what the other took, never more than came, and all of it once nothing
waits any more.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import Failure
from gateway.head import Fields
from gateway.wire.codec import Codec, Stream, StreamOwner


class Credit:
    """Octets that came in, and what became of them."""

    __slots__ = ("_came", "_made")

    def __init__(self) -> None:
        self._came = 0
        self._made = 0

    def add(self, came: int, made: int) -> None:
        """``came`` octets were turned into ``made``, which now have to move on."""
        self._came += came
        self._made += made

    def moved(self, octets: int) -> int:
        """``octets`` of what was made have moved on; how many that came may be given back."""
        if octets >= self._made:
            back, self._came, self._made = self._came, 0, 0
            return back
        back = self._came * octets // self._made
        self._came -= back
        self._made -= octets
        return back


class Translation(Codec):
    """Passes everything on as it is; to be derived from.

    ``codec`` is the client's, or the next translation; ``owner`` the exchange, or the ear of the
    one before.
    """

    def __init__(self, codec: Codec, stream: Stream) -> None:
        self.codec = codec
        self.stream = stream
        self.owner: Any = None
        self.ear = Ear(self)
        self._requests = Credit()
        self._responses = Credit()

    # The exchange's side.

    def send_head(self, stream: Stream, fields: Fields, extra: Fields, end_stream: bool) -> None:
        """Send a response head."""
        self.codec.send_head(stream, fields, extra, end_stream)

    def send_data(self, stream: Stream, data: bytes, end_stream: bool) -> int:
        """Send a piece of the response body."""
        return self.pass_on(stream, len(data), data, end_stream)

    def pass_on(self, stream: Stream, came: int, made: bytes, end_stream: bool) -> int:
        """Send what ``came`` octets of the response were turned into; as ``send_data``."""
        if not stream.open:
            return came
        self._responses.add(came, len(made))
        if not made and not end_stream:
            # Held back until there is more: its sender must not stop for that.
            return self._responses.moved(0)
        return self._responses.moved(self.codec.send_data(stream, made, end_stream))

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send trailers, and with them the end."""
        self.codec.send_trailers(stream, fields)

    def reset(self, stream: Stream, code: int) -> None:
        """Reset the client's stream."""
        self.codec.reset(stream, code)

    def consume(self, stream: Stream, octets: int) -> None:
        """Octets of the request, as the exchange knows it, have moved on."""
        back = self._requests.moved(octets)
        if back:
            self.codec.consume(stream, back)

    # The client's side, called by the ear.

    def request_data(self, data: bytes, end: bool) -> None:
        """A piece of the request's body."""
        self.hand_on(len(data), data, end)

    def hand_on(self, came: int, made: bytes, end: bool) -> None:
        """Give the exchange what ``came`` octets of the request were turned into."""
        self._requests.add(came, len(made))
        if made or end:
            self.owner.request_data(made, end)
        if not made:
            self.consume(self.stream, 0)

    def response_drained(self, octets: int) -> None:
        """Octets of the response, as the client gets it, were moved to its out-buffer."""
        self.owner.response_drained(self._responses.moved(octets))


class Ear(StreamOwner):
    """The owner of the client's stream."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation

    def request_data(self, data: bytes, end: bool) -> None:
        self._translation.request_data(data, end)

    def request_trailers(self, fields: Fields) -> None:
        self._translation.owner.request_trailers(fields)

    def request_closed(self, why: int, code: int) -> None:
        self._translation.owner.request_closed(why, code)

    def response_drained(self, octets: int) -> None:
        self._translation.response_drained(octets)

    def fail(self, failure: Failure) -> None:
        """Answer with a failure."""
        self._translation.owner.fail(failure)

    def check(self, now: float) -> float:
        """End what is overdue; the next deadline."""
        at: float = self._translation.owner.check(now)
        return at
