"""What any client may do and every server must take: the "generic" chapter of the cases."""

from __future__ import annotations

from . import frames as f
from .frames import END_HEADERS, END_STREAM, INCREMENTAL, NEVER_INDEXED, WITHOUT_INDEXING, Setting
from .peer import Address, Peer
from .script import (
    Case,
    Step,
    alive,
    alive_or_closed,
    data_of,
    each,
    head,
    ping_acked,
    response,
    settings_acked,
)
from .test_http2_3_starting import OUR_SETTINGS, server_preface

GET = f.request()
POST = f.request(method=b"POST")
OPEN_POST = f.headers(1, POST, END_HEADERS)
NO_WINDOW = f.settings({Setting.INITIAL_WINDOW_SIZE: 0})

# "user-agent", "agent" and "x-test" in Huffman code (RFC 7541 appendix B).
USER_AGENT = b"user-agent"
CODED_USER_AGENT = bytes.fromhex("b505b161cc5a93")
CODED_X_TEST = bytes.fromhex("f2b24a84ff")
CODED_VALUE = bytes.fromhex("49509f")  # "test"


def plain_field(name: bytes | int, representation: int) -> Step:
    """A GET whose block ends in a literal field without Huffman coding."""
    return f.headers(1, GET + f.literal(name, b"test", representation))


def coded_field(name: bytes, representation: int) -> Step:
    """A GET whose block ends in a literal field with the coded ``name``."""
    field = bytes([representation]) + f.coded_string(name) + f.coded_string(CODED_VALUE)
    return f.headers(1, GET + field)


def stream_ended(peer: Peer) -> None:
    """The response on stream 1 is complete."""
    peer.expect_response(1)


CASES = (
    Case("generic/1/1 server preface", f.PREFACE + OUR_SETTINGS, server_preface, handshake=False),
    Case("generic/2/1 PRIORITY on an idle stream", f.priority(1), f.ping(), ping_acked()),
    Case("generic/2/2 WINDOW_UPDATE on a half-closed (remote) stream", NO_WINDOW, f.headers(1, GET),
         f.window_update(1, 1), data_of(1, 1)),
    Case("generic/2/3 PRIORITY on a half-closed (remote) stream", NO_WINDOW, f.headers(1, GET),
         f.priority(1), f.window_update(1, 1), data_of(1, 1)),
    Case("generic/2/4 RST_STREAM on a half-closed (remote) stream", f.headers(1, GET),
         f.rst_stream(1), alive_or_closed),
    Case("generic/2/5 PRIORITY on a closed stream", f.headers(1, GET), stream_ended, f.priority(1),
         f.ping(), ping_acked()),
    Case("generic/3.1/1 DATA", OPEN_POST, f.data(1, b"test", END_STREAM), head(1, 200)),
    Case("generic/3.1/2 several DATA", OPEN_POST, f.data(1, b"test"),
         f.data(1, b"test", END_STREAM), head(1, 200)),
    Case("generic/3.1/3 DATA with padding", OPEN_POST, f.data(1, b"test", END_STREAM, padding=6),
         head(1, 200)),
    Case("generic/3.2/1 HEADERS", f.headers(1, GET), head(1, 200)),
    Case("generic/3.2/2 HEADERS with padding", f.headers(1, GET, padding=8), head(1, 200)),
    Case("generic/3.2/3 HEADERS with priority", f.headers(1, GET, depends_on=0), head(1, 200)),
    Case("generic/3.3/1 PRIORITY with weight 1", f.priority(1, weight=0), f.headers(1, GET),
         head(1, 200)),
    Case("generic/3.3/2 PRIORITY with weight 256", f.priority(1, weight=255), f.headers(1, GET),
         head(1, 200)),
    Case("generic/3.3/3 PRIORITY with a dependency", f.priority(3, depends_on=1, weight=0),
         f.headers(1, GET), head(1, 200)),
    Case("generic/3.3/4 exclusive PRIORITY", f.priority(1, weight=0, exclusive=True),
         f.headers(1, GET), head(1, 200)),
    Case("generic/3.3/5 PRIORITY of an idle stream before HEADERS of a lower one", f.priority(3),
         f.headers(1, GET), head(1, 200)),
    Case("generic/3.4/1 RST_STREAM", f.headers(1, GET, END_HEADERS), f.rst_stream(1),
         alive_or_closed),
    Case("generic/3.5/1 SETTINGS",
         f.settings({Setting.HEADER_TABLE_SIZE: 4096, Setting.ENABLE_PUSH: 1,
                     Setting.MAX_CONCURRENT_STREAMS: 100, Setting.INITIAL_WINDOW_SIZE: 65535,
                     Setting.MAX_FRAME_SIZE: 16384, Setting.MAX_HEADER_LIST_SIZE: 100}),
         settings_acked),
    Case("generic/3.7/1 PING", f.ping(b"8 octets"), ping_acked(b"8 octets")),
    Case("generic/3.8/1 GOAWAY", f.goaway(debug=b"bye"), alive_or_closed),
    Case("generic/3.9/1 WINDOW_UPDATE of the connection", f.window_update(0, 1), f.ping(),
         ping_acked()),
    Case("generic/3.9/2 WINDOW_UPDATE of a stream", f.headers(1, GET), f.window_update(1, 1),
         head(1, 200)),
    Case("generic/3.10/1 CONTINUATION", f.headers(1, GET[:5], END_STREAM),
         f.continuation(1, GET[5:]), head(1, 200)),
    Case("generic/3.10/2 several CONTINUATION", f.headers(1, GET[:5], END_STREAM),
         f.continuation(1, GET[5:10], 0), f.continuation(1, GET[10:]), head(1, 200)),
    Case("generic/4/1 GET", f.headers(1, GET), response(1, 200)),
    Case("generic/4/2 HEAD", f.headers(1, f.request(method=b"HEAD")), head(1, 200)),
    Case("generic/4/3 POST", OPEN_POST, f.data(1, b"test", END_STREAM), response(1, 200)),
    Case("generic/4/4 POST with trailers",
         f.headers(1, f.request((b"trailer", b"x-test"), method=b"POST"), END_HEADERS),
         f.data(1, b"test"), f.headers(1, f.block((b"x-test", b"ok"))), response(1, 200)),
    Case("generic/5/1 indexed field", f.headers(1, GET + f.indexed(58)), head(1, 200)),
    Case("generic/5/2 incremental indexing, indexed name", plain_field(58, INCREMENTAL),
         head(1, 200)),
    Case("generic/5/3 incremental indexing, known name, Huffman",
         coded_field(CODED_USER_AGENT, INCREMENTAL), head(1, 200)),
    Case("generic/5/4 incremental indexing, new name", plain_field(b"x-test", INCREMENTAL),
         head(1, 200)),
    Case("generic/5/5 incremental indexing, new name, Huffman",
         coded_field(CODED_X_TEST, INCREMENTAL), head(1, 200)),
    Case("generic/5/6 without indexing, indexed name", plain_field(58, WITHOUT_INDEXING),
         head(1, 200)),
    Case("generic/5/7 without indexing, known name, Huffman",
         coded_field(CODED_USER_AGENT, WITHOUT_INDEXING), head(1, 200)),
    Case("generic/5/8 without indexing, new name", plain_field(b"x-test", WITHOUT_INDEXING),
         head(1, 200)),
    Case("generic/5/9 without indexing, new name, Huffman",
         coded_field(CODED_X_TEST, WITHOUT_INDEXING), head(1, 200)),
    Case("generic/5/10 never indexed, indexed name", plain_field(58, NEVER_INDEXED), head(1, 200)),
    Case("generic/5/11 never indexed, known name, Huffman",
         coded_field(CODED_USER_AGENT, NEVER_INDEXED), head(1, 200)),
    Case("generic/5/12 never indexed, new name", plain_field(b"x-test", NEVER_INDEXED),
         head(1, 200)),
    Case("generic/5/13 never indexed, new name, Huffman",
         coded_field(CODED_X_TEST, NEVER_INDEXED), head(1, 200)),
    Case("generic/5/14 table size update", f.headers(1, f.table_size_update(128) + GET),
         head(1, 200)),
    Case("generic/5/15 several table size updates",
         f.headers(1, f.table_size_update(128) + f.table_size_update(4096) + GET), head(1, 200)),
)  # fmt: skip


@each(CASES)
def test_generic(case: Case, server: Address) -> None:
    case.run(server)


def test_many_requests_on_one_connection(server: Address) -> None:
    """Streams one after the other and all at once, the connection living on."""
    with Peer(server).handshake() as peer:
        for stream in range(1, 41, 2):
            assert peer.get(stream).status == 200
        peer.send(b"".join(f.headers(stream, GET) for stream in range(41, 121, 2)))
        for stream in range(41, 121, 2):
            peer.expect_response(stream, 200)
        alive(peer)
