"""HPACK, decoding and encoding, with and without what the caches know."""

from __future__ import annotations

from itertools import cycle, islice

from benchmarks.micro.samples import BROWSER, MANY, numbered
from benchmarks.micro.timing import Operation
from gateway.head import Fields
from gateway.wire.hpack import Decoder, Encoder
from gateway.wire.huffman import decode as huffman_decode
from gateway.wire.huffman import encode as huffman_encode

_TEXT = b"https://www.example.org/some/path?with=parameters&and=values"


def operations() -> dict[str, Operation]:
    """By name. ``same``: one block over and over; ``new``: each differs in path and id."""
    encoder = Encoder()
    decoder = Decoder()
    for _ in range(3):  # fields are indexed at their second sighting
        block = encoder.encode(BROWSER)
        decoder.decode(block)
    many = [numbered(index) for index in range(MANY)]
    new_encoder = Encoder()
    new_decoder = Decoder()
    blocks = [new_encoder.encode(fields) for fields in many]
    for each in blocks:
        new_decoder.decode(each)
    blocks = [new_encoder.encode(fields) for fields in many]
    huffman = huffman_encode(_TEXT)

    def decode_same(count: int) -> None:
        decode = decoder.decode
        for _ in range(count):
            decode(block)

    def decode_new(count: int) -> None:
        decode = new_decoder.decode
        for each in islice(cycle(blocks), count):
            decode(each)

    def encode_same(count: int) -> None:
        encode = encoder.encode
        fields: Fields = BROWSER
        for _ in range(count):
            encode(fields)

    def encode_new(count: int) -> None:
        encode = new_encoder.encode
        for fields in islice(cycle(many), count):
            encode(fields)

    def read_huffman(count: int) -> None:
        for _ in range(count):
            huffman_decode(huffman)

    return {
        "hpack decode, same": decode_same,
        "hpack decode, new": decode_new,
        "hpack encode, same": encode_same,
        "hpack encode, new": encode_new,
        "huffman decode, 60 bytes": read_huffman,
    }
