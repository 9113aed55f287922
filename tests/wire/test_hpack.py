from __future__ import annotations

import hpack as reference
import pytest
from hpack.struct import NeverIndexedHeaderTuple
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.hpack import Decoder, Encoder, HpackError, SensitiveField, encode_literal
from gateway.wire.hpack_static import NEVER_INDEXED, STATIC_TABLE


def octets(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def size_of(fields) -> int:
    return sum(len(name) + len(value) + 32 for name, value in fields)


def reference_decoder(**kwargs) -> reference.Decoder:
    return reference.Decoder(max_header_list_size=1 << 30, **kwargs)


def reference_table(peer) -> tuple:
    return tuple((bytes(name), bytes(value)) for name, value in peer.header_table.dynamic_entries)


# --------------------------------------------------------------------------- RFC 7541 appendix C

FIRST_REQUEST = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"www.example.com"),
)
SECOND_REQUEST = (*FIRST_REQUEST, (b"cache-control", b"no-cache"))
THIRD_REQUEST = (
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/index.html"),
    (b":authority", b"www.example.com"),
    (b"custom-key", b"custom-value"),
)
REQUESTS = [
    (FIRST_REQUEST, 57),
    (SECOND_REQUEST, 110),
    (THIRD_REQUEST, 164),
]
DATE_21 = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
DATE_22 = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
LOCATION = (b"location", b"https://www.example.com")
PRIVATE = (b"cache-control", b"private")
COOKIE = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
GZIP = (b"content-encoding", b"gzip")
RESPONSES = [
    ((b":status", b"302"), PRIVATE, DATE_21, LOCATION),
    ((b":status", b"307"), PRIVATE, DATE_21, LOCATION),
    ((b":status", b"200"), PRIVATE, DATE_22, LOCATION, GZIP, COOKIE),
]
RESPONSE_TABLES = [
    (LOCATION, DATE_21, PRIVATE, (b":status", b"302")),
    ((b":status", b"307"), LOCATION, DATE_21, PRIVATE),
    (COOKIE, GZIP, DATE_22),
]


@pytest.mark.parametrize(
    ("block", "field", "enters"),
    [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
         (b"custom-key", b"custom-header"), True),  # C.2.1
        ("040c 2f73 616d 706c 652f 7061 7468", (b":path", b"/sample/path"), False),  # C.2.2
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", (b"password", b"secret"), False),  # C.2.3
        ("82", (b":method", b"GET"), False),  # C.2.4
    ],
    ids=["C.2.1", "C.2.2", "C.2.3", "C.2.4"],
)  # fmt: skip
def test_field_representations_of_the_rfc(block, field, enters):
    decoder = Decoder()
    result = decoder.decode(octets(block))
    assert result.fields == (field,)
    assert decoder.table == ((field,) if enters else ())
    assert isinstance(result.fields[0], SensitiveField) == (field[0] == b"password")


@pytest.mark.parametrize(
    "blocks",
    [
        [  # C.3
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [  # C.4
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ],
    ids=["C.3", "C.4"],
)
def test_request_examples_of_the_rfc(blocks):
    decoder = Decoder()
    table: tuple = ()
    for block, (fields, table_size) in zip(blocks, REQUESTS, strict=True):
        result = decoder.decode(octets(block))
        assert result.fields == fields
        assert result.size == size_of(fields)
        assert not result.too_large
        assert result.memo is None
        table = (*(f for f in fields[3:] if f not in table and f not in STATIC_TABLE), *table)
        assert decoder.table == table
        assert size_of(decoder.table) == table_size


@pytest.mark.parametrize(
    "blocks",
    [
        [  # C.5
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133"
            "2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70"
            "6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d"
            "54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049"
            "5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e"
            "3d31",
        ],
        [  # C.6
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6"
            "2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab"
            "77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f"
            "9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ],
    ids=["C.5", "C.6"],
)
def test_response_examples_of_the_rfc_with_eviction(blocks):
    decoder = Decoder(max_table_size=256)
    for block, fields, table in zip(blocks, RESPONSES, RESPONSE_TABLES, strict=True):
        assert decoder.decode(octets(block)).fields == fields
        assert decoder.table == table
    assert size_of(decoder.table) == 215


@pytest.mark.parametrize(
    ("value", "encoding"),
    [(10, "2a"), (30, "3e"), (31, "3f00"), (158, "3f7f"), (159, "3f8001"), (1337, "3f9a0a")],
)
def test_integers_of_the_rfc(value, encoding):
    # C.1 by way of the one instruction that is an integer and nothing else, the size update.
    encoder = Encoder()
    encoder.set_peer_table_size(value)
    assert encoder.encode(()) == octets(encoding)
    decoder = Decoder()
    assert decoder.decode(octets(encoding)).fields == ()
    assert decoder.max_table_size == value


def test_static_table():
    decoder = Decoder()
    peer = reference_decoder()
    assert len(STATIC_TABLE) == 61
    for number, field in enumerate(STATIC_TABLE, 1):
        block = bytes([0x80 | number])
        assert decoder.decode(block).fields == (field,)
        assert [tuple(got) for got in peer.decode(block, raw=True)] == [field]
        assert Encoder().encode((field,)) == block or field[0] in NEVER_INDEXED


# ------------------------------------------------------------------- against the `hpack` library

NAMES = st.one_of(
    st.sampled_from([field[0] for field in STATIC_TABLE]),
    st.sampled_from([b"x-a", b"x-b", b"grpc-timeout", b"x-request-id", b"x" * 200]),
    st.binary(max_size=12),
)
VALUES = st.one_of(
    st.sampled_from([b"", b"1", b"GET", b"/", b"200", b"application/grpc", b"y" * 300]),
    st.binary(max_size=40),
)
PLAIN = st.one_of(st.sampled_from(STATIC_TABLE), st.tuples(NAMES, VALUES))
FIELD = st.one_of(PLAIN, PLAIN, PLAIN.map(SensitiveField))
# Few distinct fields, so that they repeat, enter the table and leave it again.
POOLS = st.lists(FIELD, min_size=1, max_size=12)
SIZES = st.one_of(st.sampled_from([0, 32, 100, 256, 4096, 10000]), st.integers(0, 5000))


@st.composite
def scripts(draw):
    """Steps: a table size (int) or the fields of a block (tuple)."""
    pool = draw(POOLS)
    block = st.lists(st.sampled_from(pool), max_size=10).map(tuple)
    return draw(st.lists(st.one_of(block, block, block, SIZES), max_size=25))


def is_sensitive(field) -> bool:
    return isinstance(field, SensitiveField) or field[0] in NEVER_INDEXED


@given(scripts(), st.sampled_from([0, 64, 300, 4096, 8192]))
def test_encoder_against_the_reference_decoder(script, cap):
    encoder = Encoder(cap)
    decoder = reference_decoder()
    for step in script:
        if isinstance(step, int):
            encoder.set_peer_table_size(step)
            decoder.max_allowed_table_size = step
            continue
        got = decoder.decode(encoder.encode(step), raw=True)
        assert [tuple(field) for field in got] == [tuple(field) for field in step]
        for sent, field in zip(step, got, strict=True):
            in_static = sent in STATIC_TABLE and not isinstance(sent, SensitiveField)
            if not in_static:
                assert isinstance(field, NeverIndexedHeaderTuple) == is_sensitive(sent)
        assert encoder.max_table_size == decoder.header_table_size <= max(cap, 0)
        assert encoder.table == reference_table(decoder)
        assert not any(name in NEVER_INDEXED for name, _ in encoder.table)


@given(scripts(), st.booleans())
def test_decoder_against_the_reference_encoder(script, huffman):
    encoder = reference.Encoder()
    decoder = Decoder(max_list_size=1 << 30)
    size = 4096
    for step in script:
        if isinstance(step, int):
            size = step
            continue
        # One change between two blocks: of several, the reference announces too many or none.
        decoder.set_max_table_size(size)
        encoder.header_table_size = size
        fields = [
            NeverIndexedHeaderTuple(*field) if isinstance(field, SensitiveField) else field
            for field in step
        ]
        block = encoder.encode(fields, huffman=huffman)
        result = decoder.decode(block)
        assert result.fields == step
        assert result.size == size_of(step)
        for sent, field in zip(step, result.fields, strict=True):
            # The reference indexes a sensitive field that some table already has.
            if isinstance(field, SensitiveField):
                assert isinstance(sent, SensitiveField)
        assert decoder.table == reference_table(encoder)
        assert decoder.max_table_size == encoder.header_table_size
        # Again, to take it from the cache when there is one.
        if not decoder.table:
            assert decoder.decode(encoder.encode(fields, huffman=huffman)).fields == step


@given(scripts(), st.sampled_from([0, 64, 300, 4096, 8192]))
def test_both_ends_stay_in_step(script, cap):
    encoder = Encoder(cap)
    decoder = Decoder(max_list_size=1 << 30)
    for step in script:
        if isinstance(step, int):
            decoder.set_max_table_size(step)
            encoder.set_peer_table_size(step)
            continue
        for _ in range(4):  # sighted, indexed, referred to, cached
            result = decoder.decode(encoder.encode(step))
            assert result.fields == step
            assert decoder.table == encoder.table
            for sent, field in zip(step, result.fields, strict=True):
                if isinstance(sent, SensitiveField):
                    assert isinstance(field, SensitiveField)
            assert size_of(encoder.table) <= encoder.max_table_size <= cap


def test_a_table_that_turns_over_many_times():
    # Far more insertions than the table has places: old places are given back.
    encoder = Encoder()
    decoder = Decoder()
    peer = reference_decoder()
    for i in range(1000):
        fields = ((b"x-%d" % (i % 7), b"%d" % i), (b"x-same", b"same"))
        for _ in range(2):
            block = encoder.encode(tuple(fields))
            assert decoder.decode(block).fields == fields
            assert tuple(map(tuple, peer.decode(block, raw=True))) == fields
        assert decoder.table == encoder.table == reference_table(peer)
    assert len(encoder.table) > 80


# ------------------------------------------------------------------------------ malformed blocks

INSERT = octets("4001 6101 62")  # a: b enters the table


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("80", "index 0"),
        ("82 80", "index 0"),
        ("be", "index 62 is beyond the table"),
        ("ff00", "index 127 is beyond the table"),
        ("ff80808008", "index 16777343 is beyond the table"),
        ("fff8ffffff07", "index 2147483639 is beyond the table|exceeds"),
        ("7e 0162", "index 62 is beyond the table"),
        ("0f2f 0162", "index 62 is beyond the table"),
        ("1f2f 0162", "index 62 is beyond the table"),
        ("40016101 62 bf", "index 63 is beyond the table"),
        # Integers (5.1).
        ("ff", "ends within an integer"),
        ("ff80", "ends within an integer"),
        ("ffffffffff", "ends within an integer"),
        ("7f", "ends within an integer"),
        ("0f", "ends within an integer"),
        ("3f", "ends within an integer"),
        ("ff808080808000", "too many octets"),
        ("ff80808080808001", "too many octets"),
        ("ffffffffffffffffffff7f", "too many octets"),
        ("ffffffffff7f", "exceeds 2\\*\\*31"),
        ("ff8080808008", "exceeds 2\\*\\*31"),
        ("3fffffffff7f", "exceeds 2\\*\\*31"),
        # Strings (5.2).
        ("40", "ends before a string"),
        ("00", "ends before a string"),
        ("10", "ends before a string"),
        ("04", "ends before a string"),
        ("4001 61", "ends before a string"),
        ("4002 61", "ends within a string"),
        ("4001 6102 62", "ends within a string"),
        ("0401", "ends within a string"),
        ("047f80", "ends within an integer"),
        ("047fffffffff07", "ends within a string|exceeds"),
        ("047f8008 62", "ends within a string"),
        ("0484 f1e3 c2", "ends within a string"),
        ("0481 00", "padding"),
        ("0481 ff", "padding"),
        ("0484 ffff ffff", "EOS"),
        ("0085 ffff ffff ff 0162", "EOS"),
        # Size updates (4.2, 6.3).
        ("3fe21f", "exceeds the limit of 4096"),
        ("20 3fe21f", "exceeds the limit of 4096"),
        ("82 20", "after the first field"),
        ("82 3f e11f", "after the first field"),
        ("4001 6101 62 3e", "after the first field"),
    ],
)
def test_malformed_blocks(block, message):
    decoder = Decoder()
    with pytest.raises(HpackError, match=message):
        decoder.decode(octets(block))


def test_the_largest_integers_are_read_right():
    decoder = Decoder()
    decoder.set_max_table_size(0x7FFF_FFFF)
    decoder.decode(octets("3fe0ffffff07"))
    assert decoder.max_table_size == 0x7FFF_FFFF
    with pytest.raises(HpackError, match=r"exceeds 2\*\*31"):
        decoder.decode(octets("3fe1ffffff07"))


def test_integers_may_be_padded_with_zeroes_within_five_octets():
    decoder = Decoder()
    decoder.decode(octets("3f8080808000"))
    assert decoder.max_table_size == 31


def test_blocks_without_fields():
    decoder = Decoder()
    for block in ("", "20", "3fe11f", "20 3fe11f"):
        result = decoder.decode(octets(block))
        assert (result.fields, result.size, result.too_large) == ((), 0, False)


SAMPLE = octets(
    "3fe11f 82 86 4088 25a849e95ba97d7f 8925a849e95bb8e8b4bf 0403 2f6162"
    "1008 70617373776f7264 06736563726574 be ff00"
)


def test_every_prefix_of_a_block_decodes_or_is_an_error():
    outcomes: set[object] = set()
    for end in range(len(SAMPLE) + 1):
        try:
            fields = Decoder().decode(SAMPLE[:end]).fields
        except HpackError:
            outcomes.add("error")
        else:
            outcomes.add(len(fields))
    assert outcomes == {"error", 0, 1, 2, 3, 4, 5, 6}


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)).map(
                lambda change: SAMPLE[: change[0]] + bytes([change[1]]) + SAMPLE[change[0] + 1 :]
            ),
        ),
        max_size=8,
    ),
    st.sampled_from([0, 40, 256, 4096]),
)
def test_garbage_raises_hpack_errors_only(blocks, table_size):
    decoder = Decoder(max_table_size=table_size)
    peer = reference_decoder()
    peer.max_allowed_table_size = table_size
    peer.header_table_size = table_size
    for block in blocks:
        try:
            result = decoder.decode(block)
        except HpackError:
            return
        # What we take, the reference takes, and it means the same.
        expected = peer.decode(block, raw=True)
        assert result.fields == tuple(tuple(field) for field in expected)
        assert decoder.table == reference_table(peer)
        assert size_of(decoder.table) <= decoder.max_table_size <= table_size


# ---------------------------------------------------------------------------------- size updates


def test_a_lowered_limit_must_be_honoured_at_once():
    decoder = Decoder()
    decoder.decode(INSERT)
    decoder.set_max_table_size(100)
    with pytest.raises(HpackError, match="no size update to 100 or less"):
        decoder.decode(b"\x82")


def test_a_lowered_limit_is_demanded_of_an_empty_block_and_of_known_blocks():
    for block in (b"", b"\x82"):
        decoder = Decoder()
        decoder.decode(block)
        decoder.set_max_table_size(100)
        with pytest.raises(HpackError, match="no size update"):
            decoder.decode(block)


def test_an_update_honours_a_lowered_limit():
    decoder = Decoder()
    decoder.set_max_table_size(100)
    assert decoder.decode(octets("3f45 82")).fields == ((b":method", b"GET"),)  # 100
    assert decoder.max_table_size == 100
    assert decoder.decode(b"\x82").fields == ((b":method", b"GET"),)
    with pytest.raises(HpackError, match="exceeds the limit of 100"):
        decoder.decode(octets("3f46"))


def test_the_smallest_limit_counts_though_it_rose_again():
    decoder = Decoder()
    decoder.set_max_table_size(0)
    decoder.set_max_table_size(4096)
    with pytest.raises(HpackError, match="no size update to 0"):
        decoder.decode(octets("3fe11f 82"))
    decoder = Decoder()
    decoder.set_max_table_size(0)
    decoder.set_max_table_size(4096)
    assert decoder.decode(octets("20 3fe11f 82")).fields == ((b":method", b"GET"),)
    assert decoder.max_table_size == 4096


def test_the_smallest_of_two_lowered_limits_counts():
    decoder = Decoder()
    decoder.set_max_table_size(100)
    decoder.set_max_table_size(200)
    with pytest.raises(HpackError, match="no size update to 100"):
        decoder.decode(octets("3fa901 82"))  # 200


def test_evicted_entries_are_beyond_the_table():
    decoder = Decoder(max_table_size=120)
    for _ in range(50):
        decoder.decode(INSERT)
    assert len(decoder.table) == 3
    assert decoder.decode(octets("bebfc0")).fields == ((b"a", b"b"),) * 3
    with pytest.raises(HpackError, match="index 65 is beyond the table"):
        decoder.decode(b"\xc1")
    with pytest.raises(HpackError, match="index 65 is beyond the table"):
        decoder.decode(octets("0f32 0162"))


def test_entries_of_one_name_leave_one_by_one():
    encoder = Encoder(150)  # room for four
    decoder = Decoder()
    for i in range(30):
        for _ in range(2):
            fields = ((b"x-a", b"%d" % i),)
            assert decoder.decode(encoder.encode(fields)).fields == fields
        # The name is found as long as one entry has it.
        literal = encoder.encode(((b"x-a", b"unique %d" % i),))
        assert literal[0] == 0x0F
        assert decoder.decode(literal).fields == ((b"x-a", b"unique %d" % i),)
        assert decoder.table == encoder.table
    others = tuple((b"x-b", b"%d" % i) for i in range(4))
    for _ in range(3):
        assert decoder.decode(encoder.encode(others)).fields == others
    # Now none has it.
    assert encoder.encode(((b"x-a", b"\xff"),)) == octets("00 03 782d61 01 ff")


def test_a_limit_not_below_the_maximum_in_use_demands_nothing():
    decoder = Decoder()
    decoder.decode(octets("3f45"))  # the peer chose 100
    decoder.set_max_table_size(100)
    decoder.set_max_table_size(8192)
    assert decoder.decode(b"\x82").fields == ((b":method", b"GET"),)
    assert decoder.max_table_size == 100
    decoder.decode(octets("3fe13f"))
    assert decoder.max_table_size == 8192


def test_an_update_evicts():
    decoder = Decoder()
    decoder.decode(INSERT + INSERT)
    assert size_of(decoder.table) == 68
    decoder.decode(octets("3f24"))  # 67: one entry goes
    assert len(decoder.table) == 1
    decoder.decode(octets("3f02"))  # 33
    assert len(decoder.table) == 0


def test_a_field_larger_than_the_table_empties_it():
    decoder = Decoder(max_table_size=64)
    decoder.decode(INSERT)
    big = encode_literal(b"x", b"y" * 40)
    assert decoder.decode(b"\x40" + big[1:]).fields == ((b"x", b"y" * 40),)
    assert decoder.table == ()


def test_a_name_may_come_from_the_entry_that_the_field_evicts():
    decoder = Decoder(max_table_size=40)
    decoder.decode(INSERT)
    assert decoder.decode(octets("7e 0163")).fields == ((b"a", b"c"),)
    assert decoder.table == ((b"a", b"c"),)


@pytest.mark.parametrize(
    ("cap", "sizes", "updates"),
    [
        (4096, [], ""),
        (4096, [4096], ""),
        (4096, [65536], ""),
        (4096, [100], "3f45"),
        (4096, [100, 4096], "3f45 3fe11f"),
        (4096, [100, 50, 200], "3f13 3fa901"),
        (4096, [200, 100], "3f45"),
        (4096, [0], "20"),
        (8192, [8192], "3fe13f"),
        (8192, [65536, 4096], "3fe11f"),
        (0, [], "20"),
        (100, [], "3f45"),
        (100, [4096], "3f45"),
        (100, [50, 4096], "3f13 3f45"),
    ],
)
def test_the_encoder_announces_sizes_at_the_next_block(cap, sizes, updates):
    encoder = Encoder(cap)
    for size in sizes:
        encoder.set_peer_table_size(size)
    assert encoder.encode(((b":method", b"GET"),)) == octets(updates) + b"\x82"
    assert encoder.encode(((b":method", b"GET"),)) == b"\x82"


def test_a_new_peer_size_is_announced_even_with_known_fields():
    encoder = Encoder()
    fields = ((b":method", b"GET"),)
    encoder.encode(fields)
    encoder.encode(fields)
    encoder.set_peer_table_size(0)
    assert encoder.encode(fields) == b"\x20\x82"
    assert encoder.encode(fields) == b"\x82"
