"""The limits, the caches and the choices of the codec; test_hpack.py has the format itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import hpack as reference
import pytest
from hpack.struct import NeverIndexedHeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from gateway.head import Fields
from gateway.wire import hpack
from gateway.wire.hpack import Decoder, Encoder, HpackError, SensitiveField, encode_literal
from gateway.wire.hpack_static import NEVER_INDEXED, STATIC_TABLE


def octets(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def size_of(fields) -> int:
    return sum(len(name) + len(value) + 32 for name, value in fields)


INSERT = octets("4001 6101 62")  # a: b enters the table
HEAD = ((b":method", b"GET"), (b":path", b"/index.html"), (b"custom-key", b"custom-value"))


# --------------------------------------------------------------------------------------- limits


def test_limits_are_inclusive():
    fields = ((b":method", b"GET"),) * 4
    exact = Decoder(max_list_size=size_of(fields), max_fields=4).decode(b"\x82" * 4)
    assert (exact.too_large, exact.fields) == (False, fields)
    for decoder in (Decoder(max_list_size=size_of(fields) - 1), Decoder(max_fields=3)):
        result = decoder.decode(b"\x82" * 4)
        assert result.too_large
        assert result.fields == fields[:3]
        assert result.size == size_of(fields)


def test_the_table_stays_right_after_a_list_that_is_too_large():
    decoder = Decoder(max_list_size=100)
    encoder = Encoder()
    fields = ((b"x-long", b"v" * 200), (b"x-a", b"1"), (b":method", b"GET"))
    for _ in range(3):
        result = decoder.decode(encoder.encode(tuple(fields)))
        assert result.too_large
        assert result.fields == ()
        assert result.size == size_of(fields)
        assert decoder.table == encoder.table
    assert len(decoder.table) == 2
    small = ((b"x-a", b"1"),)
    after = decoder.decode(encoder.encode(small))
    assert (after.too_large, after.fields) == (False, small)


def test_a_small_field_after_the_limit_is_not_kept():
    big = encode_literal(b"x", b"v" * 200)
    result = Decoder(max_list_size=200).decode(b"\x82" + big + b"\x82")
    assert result.too_large
    assert result.fields == ((b":method", b"GET"),)


def test_a_bomb_costs_no_memory():
    # One entry that fills the table, referred to by thousands of octets.
    decoder = Decoder()
    value = b"v" * 4000
    literal = encode_literal(b"x", value)
    result = decoder.decode(b"\x40" + literal[1:] + b"\xbe" * 60000)
    assert result.too_large
    assert len(result.fields) * len(value) <= 65536
    assert result.size == 60001 * (4001 + 32)


def test_errors_are_found_after_the_limit_too():
    with pytest.raises(HpackError, match="index 62"):
        Decoder(max_fields=1).decode(b"\x82\x82\x82\xbe")


# --------------------------------------------------------------------------------------- caches


def copy(block: bytes) -> bytes:
    return bytes(bytearray(block))


def test_equal_blocks_give_the_same_object():
    decoder = Decoder()
    block = b"\x82\x86" + encode_literal(b"grpc-timeout", b"1S")
    first = decoder.decode(block)
    first.memo = "kept"
    assert decoder.decode(copy(block)) is first
    assert decoder.decode(b"\x82").memo is None
    assert decoder.decode(copy(block)).memo == "kept"


def test_a_block_that_changes_the_table_is_decoded_each_time():
    decoder = Decoder()
    assert decoder.decode(INSERT) is not decoder.decode(copy(INSERT))
    assert len(decoder.table) == 2
    update = octets("3fe11f 82")
    assert decoder.decode(update) is not decoder.decode(copy(update))


@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        (octets("4001 6301 64"), (b"c", b"d")),  # an insertion moves the numbers
        (octets("20 3fe11f 4001 6501 66"), (b"e", b"f")),
    ],
)
def test_what_a_block_means_follows_the_table(change, meaning):
    decoder = Decoder()
    decoder.decode(INSERT)
    assert decoder.decode(b"\xbe").fields == ((b"a", b"b"),)
    assert decoder.decode(b"\xbe").fields == ((b"a", b"b"),)
    decoder.decode(change)
    assert decoder.decode(b"\xbe").fields == (meaning,)


def test_what_a_block_means_ends_with_the_table():
    decoder = Decoder()
    decoder.decode(INSERT)
    decoder.decode(b"\xbe")
    decoder.decode(octets("20"))
    with pytest.raises(HpackError, match="index 62"):
        decoder.decode(b"\xbe")


def test_the_decoder_keeps_few_and_small_blocks():
    decoder = Decoder()
    first = decoder.decode(b"\x82")
    for i in range(16):
        decoder.decode(encode_literal(b"x", b"%d" % i))
    assert decoder.decode(b"\x82") is not first
    large = encode_literal(b"x", b"v" * 1100)
    assert decoder.decode(large) is not decoder.decode(copy(large))


def test_the_encoder_keeps_the_octets_of_a_tuple():
    encoder = Encoder()
    fields = ((b"x-a", b"1"), (b":method", b"GET"))
    lengths = [len(encoder.encode(fields)) for _ in range(4)]
    assert lengths[0] > 2
    assert lengths[2:] == [2, 2]
    assert encoder.encode(fields) is encoder.encode(fields)


def test_the_encoder_forgets_octets_when_its_table_changes():
    encoder = Encoder()
    decoder = Decoder()
    fields = ((b"x-a", b"1"),)
    for other in (b"2", b"3", b"4"):
        for _ in range(4):
            assert decoder.decode(encoder.encode(fields)).fields == fields
        for _ in range(2):
            decoder.decode(encoder.encode(((b"x-b", other),)))


def test_a_tuple_in_the_cache_can_not_be_mistaken_for_a_later_one():
    # If the encoder kept only the id, a new tuple at the same address would get old octets.
    encoder = Encoder()
    for _ in range(5):
        for number, field in enumerate(STATIC_TABLE, 1):
            if field[0] not in NEVER_INDEXED:
                assert encoder.encode((field,)) == bytes([0x80 | number])


# ------------------------------------------------------------------------ what the encoder does


def test_a_field_is_indexed_at_its_second_sighting():
    encoder = Encoder()
    fields: Fields = ((b"x-a", b"1"),)
    assert encoder.encode(fields)[0] == 0x00
    assert encoder.table == ()
    assert encoder.encode(fields)[0] == 0x40
    assert encoder.table == fields
    assert encoder.encode(fields) == b"\xbe"


def test_within_one_block_too():
    encoder = Encoder()
    block = encoder.encode(((b"x-a", b"1"),) * 3)
    assert encoder.table == ((b"x-a", b"1"),)
    assert block[-1:] == b"\xbe"
    assert Decoder().decode(block).fields == ((b"x-a", b"1"),) * 3


def test_unique_values_enter_no_table():
    encoder = Encoder()
    for i in range(1000):
        encoder.encode(((b":path", b"/items?id=%d" % i), (b"x-request-id", b"%032x" % i)))
    assert encoder.table == ()


def test_sightings_are_forgotten():
    encoder = Encoder()
    encoder.encode(((b"x-a", b"1"),))
    for i in range(200):
        encoder.encode(((b"x-request-id", b"%d" % i),))
    encoder.encode(((b"x-a", b"1"),))
    assert len(encoder.table) == 0
    encoder.encode(((b"x-a", b"1"),))
    assert len(encoder.table) == 1


def test_a_repeated_field_is_sighted_among_unique_ones():
    encoder = Encoder()
    for i in range(3):
        unique = tuple((b"x-request-id", b"%d.%d" % (i, j)) for j in range(60))
        encoder.encode((*unique, (b"x-a", b"1")))
    assert encoder.table == ((b"x-a", b"1"),)


def test_large_fields_enter_no_table():
    encoder = Encoder()
    encoder.encode(((b"x-a", b"1"),))
    encoder.encode(((b"x-a", b"1"),))
    large = ((b"x-large", b"v" * 3500),)
    for _ in range(3):
        encoder.encode(large)
    assert encoder.table == ((b"x-a", b"1"),)


def test_names_are_taken_from_the_tables():
    encoder = Encoder()
    assert encoder.encode(((b":path", b"/a"),)) == octets("04 02 2f61")
    assert encoder.encode(((b"user-agent", b"\xff"),)) == octets("0f2b 01 ff")
    encoder.encode(((b"x-a", b"1"), (b"x-a", b"1")))
    assert encoder.encode(((b"x-a", b"\xff"),)) == octets("0f2f 01 ff")


def test_strings_are_huffman_encoded_when_that_is_shorter():
    encoder = Encoder()
    assert encoder.encode(((b":authority", b"www.example.com"),)) == octets(
        "01 8c f1e3c2e5f23a6ba0ab90f4ff"
    )
    assert encoder.encode(((b":authority", b"\xff\xff"),)) == octets("01 02 ffff")
    assert encoder.encode(((b":authority", b""),)) == b"\x81"


@pytest.mark.parametrize("name", sorted(NEVER_INDEXED))
def test_credentials_are_never_indexed(name):
    encoder = Encoder()
    fields = ((name, b"secret"),)
    for _ in range(4):
        block = encoder.encode(tuple(fields))
        assert block[0] & 0xF0 == 0x10
        assert encoder.table == ()
    (field,) = Decoder().decode(block).fields
    assert isinstance(field, SensitiveField)
    assert field == fields[0]
    assert encode_literal(name, b"secret")[0] & 0xF0 == 0x10


@pytest.mark.parametrize("field", [(b":method", b"GET"), (b"x-a", b"1"), (b":path", b"/a")])
def test_the_mark_is_passed_on(field):
    # Also where a table has the same field without the mark.
    encoder = Encoder()
    for _ in range(3):
        encoder.encode((field,))
    block = encoder.encode((SensitiveField(field),))
    assert block[0] & 0xF0 == 0x10
    (got,) = reference.Decoder().decode(encode_literal(b"a", b"b"), raw=True)
    assert not isinstance(got, NeverIndexedHeaderTuple)
    decoder = Decoder()
    again = Encoder()
    first = decoder.decode(again.encode((SensitiveField(field),))).fields
    second = decoder.decode(again.encode(first)).fields
    assert first == second == (field,)
    assert isinstance(second[0], SensitiveField)


NAMES = st.binary(max_size=12) | st.sampled_from([field[0] for field in STATIC_TABLE])
VALUES = st.binary(max_size=40) | st.binary(min_size=120, max_size=300)


@given(st.tuples(NAMES, VALUES))
def test_literals_without_state(field):
    literal = encode_literal(*field)
    (got,) = reference.Decoder().decode(literal, raw=True)
    assert tuple(got) == field
    encoder = Encoder()
    decoder = Decoder()
    head = ((b"x-a", b"1"), (b":method", b"GET"))
    for _ in range(4):
        result = decoder.decode(encoder.encode(head) + encode_literal(*field))
        assert result.fields == (*head, field)
        assert decoder.table == encoder.table


def test_static_names_of_literals():
    assert encode_literal(b":path", b"/a") == octets("04 02 2f61")
    assert encode_literal(b"te", b"x") == octets("00 02 7465 01 78")
    assert encode_literal(b"x" * 127, b"")[:3] == octets("00 7f 00")


# ----------------------------------------------------------------------------------------- modes


def test_the_source_runs_without_cython(monkeypatch):
    source = Path(hpack.__file__).with_name("hpack.py")
    monkeypatch.setitem(sys.modules, "cython", None)
    spec = importlib.util.spec_from_file_location("hpack_interpreted", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.cython.__name__ == "gateway.cython_fallback"
    assert module.COMPILED is False
    encoder = module.Encoder()
    decoder = module.Decoder()
    for _ in range(3):
        assert decoder.decode(encoder.encode(HEAD)).fields == HEAD


def test_the_mode_is_told():
    assert hpack.COMPILED is not hpack.__file__.endswith(".py")
