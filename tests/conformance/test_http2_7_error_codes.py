"""Error codes that nobody has defined, RFC 9113 section 7."""

from __future__ import annotations

from . import frames as f
from .peer import Address
from .script import Case, alive, alive_or_closed, each, ping_acked, response

CASES = (
    Case("http2/7/1 GOAWAY with an unknown code", f.goaway(0, 0xFF), alive_or_closed),
    Case("http2/7/2 RST_STREAM with an unknown code",
         f.headers(1, f.request(method=b"POST"), f.END_HEADERS), f.rst_stream(1, 0xFF), f.ping(),
         ping_acked()),
    Case("rfc9113/7 streams after RST_STREAM with an unknown code",
         f.headers(1, f.request(method=b"POST"), f.END_HEADERS), f.rst_stream(1, 0xFFFF_FFFF),
         f.headers(3, f.request()), response(3, 200), alive),
)  # fmt: skip


@each(CASES)
def test_error_codes(case: Case, server: Address) -> None:
    case.run(server)
