"""HPACK decoding errors, RFC 7541: each is a connection error of type COMPRESSION_ERROR."""

from __future__ import annotations

from . import frames as f
from .frames import DEFAULT_TABLE_SIZE, Code, Setting
from .peer import Address, Peer
from .script import Case, Step, connection_error, each, response

COMPRESSION = connection_error(Code.COMPRESSION_ERROR)

# Huffman codes (RFC 7541 appendix B) of "x-test" and "test"; four bits of padding end the latter.
CODED_NAME = bytes.fromhex("f2b24a84ff")
CODED_TEST = bytes.fromhex("49509f")


def request_with(tail: bytes) -> bytes:
    """A request whose block ends in ``tail``."""
    return f.headers(1, f.request() + tail)


def coded(value: bytes) -> bytes:
    """A literal field with a Huffman-coded name and the coded ``value``."""
    return bytes([f.WITHOUT_INDEXING]) + f.coded_string(CODED_NAME) + f.coded_string(value)


def size_update_above(excess: int) -> Step:
    """A table size update that passes what the server has allowed by ``excess``."""

    def send(peer: Peer) -> None:
        allowed = peer.server_settings.get(Setting.HEADER_TABLE_SIZE, DEFAULT_TABLE_SIZE)
        peer.send(f.headers(1, f.table_size_update(allowed + excess) + f.request()))

    return send


CASES = (
    Case("hpack/2.3.3/1 indexed field beyond the tables", request_with(f.indexed(70)), COMPRESSION),
    Case("hpack/2.3.3/2 literal with a name index beyond the tables",
         request_with(f.literal(70, b"", f.INCREMENTAL)), COMPRESSION),
    Case("hpack/4.2/1 table size update at the end of a block",
         request_with(f.table_size_update(1)), COMPRESSION),
    Case("hpack/5.2/1 Huffman padding longer than 7 bits",
         request_with(coded(CODED_TEST + b"\xff")), COMPRESSION),
    Case("hpack/5.2/2 Huffman padding of zeros", request_with(coded(b"\x49\x50\x90")), COMPRESSION),
    Case("hpack/5.2/3 Huffman-coded EOS", request_with(coded(b"\xff\xff\xff\xfd\x25\x42\x7f")),
         COMPRESSION),
    Case("hpack/6.1/1 indexed field with index 0", request_with(f.indexed(0)), COMPRESSION),
    Case("hpack/6.3/1 table size update above SETTINGS_HEADER_TABLE_SIZE", size_update_above(1),
         COMPRESSION),
    Case("rfc7541/6.3 table size update of just SETTINGS_HEADER_TABLE_SIZE", size_update_above(0),
         response(1, 200)),
    Case("rfc7541/5.1 integer without end", request_with(b"\xff" + b"\x80" * 12 + b"\x01"),
         COMPRESSION),
    Case("rfc7541/5.1 truncated integer", request_with(b"\xff\x80"), COMPRESSION),
    Case("rfc7541/5.2 truncated string", request_with(b"\x00\x05x-t"), COMPRESSION),
    Case("rfc7541/5.2 string length beyond the block",
         request_with(b"\x00\x01a\x7f\xff\xff\xff\x7f"), COMPRESSION),
    Case("rfc7541/5.2 right Huffman padding", request_with(coded(CODED_TEST)), response(1, 200)),
    Case("rfc7541/4.3 index of an entry that was evicted",
         f.headers(1, f.request() + f.literal(b"x-a", b"1", f.INCREMENTAL)), response(1, 200),
         f.headers(3, f.table_size_update(0) + f.table_size_update(4096) + f.request()
                   + f.indexed(62)), COMPRESSION),
    Case("rfc7541/4.4 an entry larger than the table empties it",
         f.headers(1, f.request() + f.literal(b"x-a", b"1", f.INCREMENTAL)
                   + f.literal(b"x-b", b"x" * 4_096, f.INCREMENTAL)), response(1, 200),
         f.headers(3, f.request() + f.indexed(62)), COMPRESSION),
    Case("rfc7541/2.3.2 newest entry has index 62",
         f.headers(1, f.request() + f.literal(b"x-a", b"1", f.INCREMENTAL)
                   + f.literal(b"x-b", b"2", f.INCREMENTAL)), response(1, 200),
         f.headers(3, f.request() + f.indexed(62) + f.indexed(63)), response(3, 200),
         f.headers(5, f.request() + f.indexed(64)), COMPRESSION),
)  # fmt: skip


@each(CASES)
def test_hpack(case: Case, server: Address) -> None:
    case.run(server)
