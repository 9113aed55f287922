"""HTTP frames: format, size and field section compression, RFC 9113 sections 4.1 to 4.3."""

from __future__ import annotations

from . import frames as f
from .frames import DEFAULT_MAX_FRAME_SIZE, END_STREAM, Code, Setting
from .peer import Address, Peer
from .script import Case, alive, connection_error, each, head, ping_acked, response, stream_error

UNKNOWN = f.frame(0x16, 0, 0, bytes(8))
POST = f.request(method=b"POST")


def advertised_frame_size(peer: Peer) -> int:
    """What the server takes in one frame."""
    return peer.server_settings.get(Setting.MAX_FRAME_SIZE, DEFAULT_MAX_FRAME_SIZE)


def largest_data(peer: Peer) -> None:
    """DATA of 2^14 octets, or less where the stream window is smaller."""
    peer.send(f.data(1, b"x" * DEFAULT_MAX_FRAME_SIZE, END_STREAM))


def too_large_data(peer: Peer) -> None:
    """DATA one octet above the limit."""
    peer.send(f.data(1, b"x" * (advertised_frame_size(peer) + 1), END_STREAM))


def too_large_headers(peer: Peer) -> None:
    """HEADERS above the limit, complete in itself."""
    fields = f.dummy_fields(advertised_frame_size(peer) // 4_000 + 1)
    peer.send(f.headers(1, f.request() + fields))


def too_large_unknown(peer: Peer) -> None:
    """A frame of unknown type above the limit; on stream 0 it could be about the connection."""
    peer.send(f.frame(0xF0, 0, 0, bytes(advertised_frame_size(peer) + 1)))


CASES = (
    Case("http2/4.1/1 unknown frame type", UNKNOWN, f.ping(), ping_acked()),
    Case("http2/4.1/2 undefined flags", f.ping(flags=0x16), ping_acked()),
    Case("http2/4.1/3 reserved bit", f.frame(0x6, 0x16, 0x8000_0000, bytes(8)), ping_acked()),
    Case("http2/4.2/1 DATA of 2^14 octets", f.headers(1, POST, f.END_HEADERS), largest_data,
         head(1, 200)),
    Case("http2/4.2/2 DATA above SETTINGS_MAX_FRAME_SIZE", f.headers(1, POST, f.END_HEADERS),
         too_large_data, stream_error(1, Code.FRAME_SIZE_ERROR)),
    Case("http2/4.2/3 HEADERS above SETTINGS_MAX_FRAME_SIZE", too_large_headers,
         connection_error(Code.FRAME_SIZE_ERROR)),
    Case("http2/4.3/1 truncated field block", f.headers(1, b"\x40"),
         connection_error(Code.COMPRESSION_ERROR)),
    Case("http2/4.3/2 PRIORITY inside a field block", f.headers(1, f.request(), 0), f.priority(1),
         f.continuation(1, f.dummy_fields(1)), connection_error(Code.PROTOCOL_ERROR)),
    Case("http2/4.3/3 HEADERS of another stream inside a field block",
         f.headers(1, f.request(), 0), f.headers(3, f.request()),
         f.continuation(1, f.dummy_fields(1)), connection_error(Code.PROTOCOL_ERROR)),
    Case("rfc9113/4.1 unknown frame type on a stream that never opens",
         f.frame(0xF0, 0xFF, 99, b"x" * 100), alive),
    Case("rfc9113/4.1 unknown frame type above the size limit",
         too_large_unknown, connection_error(Code.FRAME_SIZE_ERROR)),
    Case("rfc9113/4.3 undecodable block of a request that is refused anyway",
         f.headers(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
         connection_error(Code.COMPRESSION_ERROR)),
    Case("rfc9113/4.3 field block split into single octets",
         f.headers(1, f.request()[:1], END_STREAM),
         *(f.continuation(1, bytes([octet]), 0) for octet in f.request()[1:7]),
         f.continuation(1, f.request()[7:]), response(1, 200)),
)  # fmt: skip


@each(CASES)
def test_frames(case: Case, server: Address) -> None:
    case.run(server)


def test_state_of_a_rejected_block_is_kept(server: Address) -> None:
    """rfc9113/4.3: a request that is malformed still changes the dynamic table."""
    malformed = f.request() + f.literal(b"UPPER", b"no") + f.literal(b"x-kept", b"v", f.INCREMENTAL)
    with Peer(server).handshake() as peer:
        peer.send(f.headers(1, malformed))
        peer.expect_stream_error(1, Code.PROTOCOL_ERROR)
        peer.send(f.headers(3, f.request() + f.indexed(62)))
        peer.expect_response(3, 200)
