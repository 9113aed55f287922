"""What a peer's mistake raises while a frame is handled."""

from __future__ import annotations

from gateway.wire.frames import ErrorCode


class ConnectionFault(Exception):
    """The peer broke a rule for which RFC 9113 closes the connection.

    Raised while a frame is handled and caught by :meth:`Connection.receive`.
    """

    def __init__(self, code: ErrorCode, detail: str, counter: str = "protocol_error") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.counter = counter
