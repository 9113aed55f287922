from __future__ import annotations

import pytest
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.wire import huffman

REFERENCE = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

# RFC 7541 appendix C.4 and C.6.
VECTORS = [
    (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
    (b"no-cache", "a8eb10649cbf"),
    (b"custom-key", "25a849e95ba97d7f"),
    (b"custom-value", "25a849e95bb8e8b4bf"),
    (b"302", "6402"),
    (b"private", "aec3771a4b"),
    (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
    (b"https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
    (b"307", "640eff"),
    (b"gzip", "9bd9ab"),
    (
        b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ),
]


@pytest.mark.parametrize(("text", "encoded"), VECTORS, ids=[text.decode() for text, _ in VECTORS])
def test_vectors_of_the_rfc(text, encoded):
    assert huffman.encode(text).hex() == encoded
    assert huffman.encoded_length(text) == len(encoded) // 2
    assert huffman.decode(bytes.fromhex(encoded)) == text


@pytest.mark.parametrize("symbol", range(256))
def test_every_symbol_has_the_code_of_the_rfc(symbol):
    length = huffman.CODE_LENGTHS[symbol]
    assert length == REQUEST_CODES_LENGTH[symbol]
    encoded = huffman.encode(bytes([symbol]))
    bits = f"{REQUEST_CODES[symbol]:0{length}b}"
    assert f"{int.from_bytes(encoded, 'big'):0{len(encoded) * 8}b}" == bits + "1" * (-length % 8)
    # At every alignment to the octets of the string.
    for before in range(8):
        text = b"0" * before + bytes([symbol]) + b"1"
        assert huffman.decode(huffman.encode(text)) == text


@given(st.binary(max_size=300))
def test_encodes_as_the_reference_and_back(text):
    encoded = huffman.encode(text)
    assert encoded == REFERENCE.encode(text)
    assert huffman.encoded_length(text) == len(encoded)
    assert huffman.decode(encoded) == text


@given(st.binary(max_size=40))
@example(b"\xff" * 4)
@example(b"")
def test_accepts_what_the_reference_accepts(data):
    try:
        expected = decode_huffman(data)
    except HPACKDecodingError:
        with pytest.raises(huffman.HuffmanError):
            huffman.decode(data)
    else:
        assert huffman.decode(data) == (expected or b"")


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20))
def test_decodes_a_range_of_a_block(before, text, after):
    encoded = huffman.encode(text)
    block = before + encoded + after
    assert huffman.decode(block, len(before), len(before) + len(encoded)) == text


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 4), (3, 2), (4, -1), (0, -2)])
def test_a_range_outside_of_the_data_is_refused(start, end):
    with pytest.raises(IndexError):
        huffman.decode(b"\xff\xff\xff", start, end)


@pytest.mark.parametrize("size", [5000, 8192, 20000])
@pytest.mark.parametrize("symbol", [b"0", b"\x0a", b"\xff"])
def test_strings_longer_than_any_buffer(size, symbol):
    text = symbol * size
    encoded = huffman.encode(text)
    assert encoded == REFERENCE.encode(text)
    assert huffman.decode(encoded) == text


def test_results_do_not_share_memory():
    first = huffman.encode(b"first")
    second = huffman.encode(b"second")
    decoded_first = huffman.decode(first)
    decoded_second = huffman.decode(second)
    assert (decoded_first, decoded_second) == (b"first", b"second")
    assert first == REFERENCE.encode(b"first")


def bits(text: str) -> bytes:
    text = text.replace(" ", "")
    assert len(text) % 8 == 0
    return int(text, 2).to_bytes(len(text) // 8, "big")


ZERO = "00000"  # the code of "0"
EOS = "1" * 30


@pytest.mark.parametrize(
    "data",
    [
        bits(EOS + "11"),
        bits(ZERO + EOS + ZERO),
        bits(ZERO * 2 + EOS),
        bits(EOS + EOS + "1111"),
    ],
)
def test_eos_is_an_error(data):
    with pytest.raises(huffman.HuffmanError, match="EOS in"):
        huffman.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        bits(ZERO + "111" + "11111111"),  # 11 ones
        bits(ZERO * 8 + "11111111"),  # 8 ones
        b"\xff",
        b"\xff\xff\xff",
        bits(ZERO + "110"),
        bits(ZERO + "011"),
        bits(ZERO + "101"),
        b"\x00",
    ],
)
def test_padding_is_less_than_an_octet_and_all_ones(data):
    with pytest.raises(huffman.HuffmanError, match="padding"):
        huffman.decode(data)


@pytest.mark.parametrize("count", range(1, 9))
def test_every_length_of_padding(count):
    # "0" has five bits, so this many of them leave 0..7 bits.
    encoded = huffman.encode(b"0" * count)
    padding = len(encoded) * 8 - 5 * count
    assert encoded[-1] & ((1 << padding) - 1) == (1 << padding) - 1
    assert huffman.decode(encoded) == b"0" * count
    if padding:
        with pytest.raises(huffman.HuffmanError, match="padding"):
            huffman.decode(encoded[:-1] + bytes([encoded[-1] & 0xFE]))
