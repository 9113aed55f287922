"""The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).

The code is canonical: codes of one length follow each other in the order of their symbols, and
longer codes come after shorter ones. So the 257 lengths below say everything; the codes and the
decoder's tables are computed from them when the module is loaded.

The decoder is a state machine that takes four bits at a step. A state is a node of the code's
tree that has children: the bits read since the last symbol. There are 256 of them, so a state
fits a byte and the machine is three byte strings of 256 * 16, indexed by ``state * 16 + nibble``:
the next state, the symbol completed on the way, and flags. The shortest code has five bits, so a
step completes one symbol at most. Together they are 12 KiB and the part that text uses fits the
first-level cache, which a table for eight bits at a step (256 KiB) would not.

A string may end only in a state whose bits are a prefix of EOS (all ones) and at most seven long;
EOS itself, 30 ones, is an error wherever it appears.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

# fmt: off
CODE_LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
)
# fmt: on
"""The length in bits of each symbol's code; the last is EOS (RFC 7541 appendix B)."""

EOS = 256


class HuffmanError(ValueError):
    """A string that is not a Huffman encoding (RFC 7541 section 5.2)."""


def _canonical_codes() -> list[int]:
    codes = [0] * len(CODE_LENGTHS)
    code = 0
    previous = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(CODE_LENGTHS)):
        code <<= length - previous
        previous = length
        codes[symbol] = code
        code += 1
    return codes


_EMITS = 1
_FAILS = 2


def _decoder_tables(codes: list[int]) -> tuple[bytes, bytes, bytes, bytes]:
    """(next states, symbols, flags) by ``state * 16 + nibble``, and by state: may a string end?"""
    # A node is [child for 0, child for 1]; a child is a node's number, or ~symbol for a leaf.
    nodes = [[0, 0]]
    endings = {0}
    for symbol, code in enumerate(codes):
        node = 0
        length = CODE_LENGTHS[symbol]
        for depth in range(1, length):
            bit = (code >> (length - depth)) & 1
            if not nodes[node][bit]:
                nodes.append([0, 0])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit]
            if symbol == EOS and depth <= 7:
                endings.add(node)
        nodes[node][code & 1] = ~symbol
    states = bytearray(len(nodes) * 16)
    symbols = bytearray(len(nodes) * 16)
    flags = bytearray(len(nodes) * 16)
    for state in range(len(nodes)):
        for nibble in range(16):
            step = state * 16 + nibble
            node = state
            for shift in (3, 2, 1, 0):
                child = nodes[node][(nibble >> shift) & 1]
                if child >= 0:
                    node = child
                elif ~child == EOS:
                    flags[step] |= _FAILS
                    node = 0
                else:
                    flags[step] |= _EMITS
                    symbols[step] = ~child
                    node = 0
            states[step] = node
    ends = bytes(state in endings for state in range(len(nodes)))
    return bytes(states), bytes(symbols), bytes(flags), ends


_CODES = _canonical_codes()
_TABLES = _decoder_tables(_CODES)

# C globals when compiled: a read of them is a load, not a look-up in the module's dict.
_STATES: bytes = cython.declare(bytes, _TABLES[0])
_SYMBOLS: bytes = cython.declare(bytes, _TABLES[1])
_FLAGS: bytes = cython.declare(bytes, _TABLES[2])
_ENDS: bytes = cython.declare(bytes, _TABLES[3])
_LENGTHS: bytes = cython.declare(bytes, bytes(CODE_LENGTHS[:EOS]))
_CODE_LIST: list[int] = cython.declare(list, _CODES[:EOS])
_CODE_WORDS: bytes = cython.declare(bytes, struct.pack(f"={EOS}I", *_CODES[:EOS]))

# Compiled code writes its output here first and then makes a bytes of the right length. It can't be
# interrupted between the two; interpreted code could, so that takes a buffer of its own each time.
_SCRATCH_SIZE: int = cython.declare(cython.Py_ssize_t, 8192)
_SCRATCH: bytearray = cython.declare(bytearray, bytearray(8192))


@cython.boundscheck(False)
@cython.wraparound(False)
@cython.cdivision(True)
def decode(data: bytes, start: cython.Py_ssize_t = 0, end: cython.Py_ssize_t = -1) -> bytes:
    """The string that ``data[start:end]`` encodes (``end`` -1: to the end).

    Raises HuffmanError for EOS, and for padding longer than seven bits or not all ones.
    """
    if end == -1:
        end = len(data)
    if start < 0 or start > end or end > len(data):
        raise IndexError("the range is not within the data")
    i: cython.Py_ssize_t
    step: cython.uint
    octet: cython.uint
    flags: cython.uint
    state: cython.uint = 0
    length: cython.Py_ssize_t = 0
    states: bytes = _STATES
    symbols: bytes = _SYMBOLS
    all_flags: bytes = _FLAGS
    # No code is shorter than five bits.
    room: cython.Py_ssize_t = (end - start) * 8 // 5
    scratch: cython.bint = cython.compiled and room <= _SCRATCH_SIZE
    buffer: bytearray = _SCRATCH if scratch else bytearray(room)
    output: cython.p_uchar = buffer
    for i in range(start, end):
        octet = data[i]
        step = state * 16 + (octet >> 4)
        flags = all_flags[step]
        if flags:
            if flags & 2:
                raise HuffmanError("EOS in a Huffman-encoded string")
            output[length] = symbols[step]
            length += 1
        step = states[step] * 16 + (octet & 15)
        flags = all_flags[step]
        if flags:
            if flags & 2:
                raise HuffmanError("EOS in a Huffman-encoded string")
            output[length] = symbols[step]
            length += 1
        state = states[step]
    if not _ENDS[state]:
        raise HuffmanError("the padding of a Huffman-encoded string is not a prefix of EOS")
    # A slice of a C pointer is a bytes already.
    result: bytes = output[:length] if cython.compiled else bytes(output[:length])
    return result


@cython.boundscheck(False)
@cython.wraparound(False)
def encoded_length(data: bytes) -> cython.Py_ssize_t:
    """How many octets :func:`encode` makes of ``data``."""
    i: cython.Py_ssize_t
    bits: cython.Py_ssize_t = 7
    lengths: bytes = _LENGTHS
    for i in range(len(data)):
        bits += lengths[data[i]]
    return bits >> 3


@cython.boundscheck(False)
@cython.wraparound(False)
def encode(data: bytes) -> bytes:
    """The Huffman encoding of ``data``, padded with ones to whole octets."""
    i: cython.Py_ssize_t
    symbol: cython.uint
    bits: cython.uint = 0
    pending: cython.ulonglong = 0
    length: cython.Py_ssize_t = 0
    lengths: bytes = _LENGTHS
    codes: cython.p_const_uint
    if cython.compiled:
        codes = cython.cast(cython.p_const_uint, cython.cast(cython.p_const_char, _CODE_WORDS))
    else:
        codes = _CODE_LIST
    # No code is longer than 30 bits.
    room: cython.Py_ssize_t = len(data) * 4 + 1
    scratch: cython.bint = cython.compiled and room <= _SCRATCH_SIZE
    buffer: bytearray = _SCRATCH if scratch else bytearray(room)
    output: cython.p_uchar = buffer
    for i in range(len(data)):
        symbol = data[i]
        pending = (pending << lengths[symbol]) | codes[symbol]
        bits += lengths[symbol]
        while bits >= 8:
            bits -= 8
            output[length] = (pending >> bits) & 0xFF
            length += 1
        pending &= 0xFF
    if bits:
        output[length] = ((pending << (8 - bits)) | (0xFF >> bits)) & 0xFF
        length += 1
    # A slice of a C pointer is a bytes already.
    result: bytes = output[:length] if cython.compiled else bytes(output[:length])
    return result
