"""HPACK, the compression of header fields in HTTP/2 (RFC 7541).

Each direction of a connection has one table that both ends change in step: the encoder here and
the peer's decoder, the decoder here and the peer's encoder. A block says "field number n of the
table" (one octet, mostly), or spells a field out and says whether it enters the table. What may
never happen is that the two ends disagree about the table, so a decoder that finds an error gives
up for good (COMPRESSION_ERROR closes the connection, RFC 9113 section 4.3), and a decoder that has
seen enough fields of one block still carries every instruction out.

**Numbers.** 1..61 are the static table; 62 is the newest entry of the dynamic table, 63 the one
before. Entries leave at the old end when the sum of their sizes (name + value + 32 each) exceeds
the table's maximum.

**Size updates** (section 4.2, 6.3). The decoder's side sets a limit with SETTINGS; the encoder
chooses a maximum within it and says so at the start of its next block. After the limit fell below
the maximum in use, the next block must begin with an update that honours it. If it fell and rose
between two blocks, the smallest value counts as well as the last.

**Caches.** Decoding a block that changes no table has a result that depends on its octets and the
table alone, so the decoder keeps such results until the table changes and returns the same
:class:`HeaderBlock` for equal octets; its ``memo`` lets the consumer keep what it derived. Likewise
the encoder keeps the octets of a fields tuple, by the identity of the tuple. Both caches are small
(16 blocks of at most 1 KiB), emptied when full and when their table changes.

**What the encoder indexes.** A field enters the table at its second sighting, so a value that
occurs once (an id, a path with a query, a deadline) pushes nothing out. Sightings are remembered
as hashes in two generations of 64. Credentials never enter a table and are marked so that no
intermediary puts them into one (section 7.1.3).

Field contents are not validated here; :mod:`gateway.wire.fields` does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.wire.hpack_static import NEVER_INDEXED, STATIC_TABLE
from gateway.wire.hpack_static import HpackError as HpackError
from gateway.wire.hpack_static import SensitiveField as SensitiveField
from gateway.wire.huffman import HuffmanError, encoded_length
from gateway.wire.huffman import decode as huffman_decode
from gateway.wire.huffman import encode as huffman_encode

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
    from gateway.head import Field, Fields
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

COMPILED = cython.compiled
"""Whether this module is the compiled one."""

# C globals when compiled.
_STATIC: list[Field] = cython.declare(list, [(b"", b""), *STATIC_TABLE])
_STATIC_FIELDS: dict[Field, int] = cython.declare(
    dict, {field: number for number, field in enumerate(STATIC_TABLE, 1)}
)
_STATIC_NAMES: dict[bytes, int] = cython.declare(
    # Reversed: of several entries with one name the first wins.
    dict,
    {field[0]: 61 - i for i, field in enumerate(reversed(STATIC_TABLE))},
)
_NEVER_INDEXED: frozenset[bytes] = cython.declare(frozenset, NEVER_INDEXED)
_CACHED_BLOCKS: int = cython.declare(cython.Py_ssize_t, 16)
_CACHED_OCTETS: int = cython.declare(cython.Py_ssize_t, 1024)
_SIGHTINGS: int = cython.declare(cython.Py_ssize_t, 64)
_MAX_INTEGER: int = cython.declare(cython.longlong, 0x7FFF_FFFF)


class HeaderBlock:
    """What one header block says.

    ``fields`` keeps their order, ``size`` is their sum as of RFC 7541 section 4.1 in octets. When
    ``too_large``, ``fields`` are only those that fitted the limits; ``size`` counts all. ``memo``
    belongs to the consumer and starts as None. A block may be shared by many messages: apart from
    ``memo`` it never changes.
    """

    def __init__(self, fields: Fields, size: cython.longlong, too_large: cython.bint) -> None:
        self.fields = fields
        self.size = size
        self.too_large = too_large
        self.memo: Any = None

    def __repr__(self) -> str:
        mark = " too large" if self.too_large else ""
        return f"<HeaderBlock {len(self.fields)} fields, {self.size} octets{mark}>"


class _Table:
    """The dynamic table of one direction (RFC 7541 sections 2.3.2 and 4).

    ``entries[first:]`` are the fields from the oldest to the newest; evicted places in front are
    given back in batches. With ``numbers`` (the encoder's) it also finds fields: an entry's serial
    is how many were inserted before it, so it stands for the index ``61 + inserted - serial``.
    """

    def __init__(self, max_size: cython.longlong) -> None:
        self.entries: list[Field] = []
        self.first = 0
        self.size = 0
        self.max_size = max_size
        self.inserted = 0
        self.numbers: dict[Field, int] = {}
        self.names: dict[bytes, int] = {}

    def evict(self, target: cython.longlong) -> None:
        """Remove the oldest entries until the size is at most ``target``."""
        name: bytes
        value: bytes
        while self.size > target:
            field = self.entries[self.first]
            self.entries[self.first] = _STATIC[0]
            self.first += 1
            name, value = field
            self.size -= len(name) + len(value) + 32
            if self.numbers:
                del self.numbers[field]
                # A newer entry may have taken the name over.
                if self.names[name] < self.inserted - (len(self.entries) - self.first):
                    del self.names[name]
        if self.first == len(self.entries):
            self.entries.clear()
            self.first = 0
        elif self.first >= 64:
            del self.entries[: self.first]
            self.first = 0

    def insert(self, field: Field, size: cython.longlong) -> None:
        """Add a field of ``size`` octets; one that exceeds the maximum empties the table (4.4)."""
        if size > self.max_size:
            self.evict(0)
            return
        if self.size + size > self.max_size:
            self.evict(self.max_size - size)
        self.entries.append(field)
        self.size += size

    def insert_numbered(self, field: Field, size: cython.longlong) -> None:
        """Add a field that is not in the table and fits it, so that it can be found."""
        self.insert(field, size)
        self.numbers[field] = self.inserted
        self.names[field[0]] = self.inserted
        self.inserted += 1

    def resize(self, max_size: cython.longlong) -> None:
        self.max_size = max_size
        self.evict(max_size)


class Decoder:
    """Decodes the header blocks of one direction of a connection, in their order.

    ``max_table_size`` is the SETTINGS_HEADER_TABLE_SIZE in force when the connection starts. In
    HTTP/2 that is 4096 whatever we announce; announce and then call :meth:`set_max_table_size`
    when the peer acknowledged it. A list of more than ``max_list_size`` octets (RFC 7541 section
    4.1) or ``max_fields`` fields is too large.
    """

    def __init__(
        self,
        max_table_size: cython.longlong = 4096,
        max_list_size: cython.longlong = 65536,
        max_fields: cython.Py_ssize_t = 128,
    ) -> None:
        self._table = _Table(max_table_size)
        self._cache: dict[bytes, HeaderBlock] = {}
        self._limit = max_table_size
        # What an update at the start of the next block must not exceed; -1: none is due.
        self._required = -1
        self._max_list_size = max_list_size
        self._max_fields = max_fields
        self._position = 0

    @property
    def max_table_size(self) -> int:
        """Octets the dynamic table may have: what the peer's encoder chose, not our limit."""
        return self._table.max_size

    @property
    def table(self) -> Fields:
        """The dynamic table, the newest entry first."""
        return tuple(reversed(self._table.entries[self._table.first :]))

    def set_max_table_size(self, size: cython.longlong) -> None:
        """Our SETTINGS_HEADER_TABLE_SIZE in octets, once the peer acknowledged it."""
        self._limit = size
        if size < self._table.max_size and (self._required < 0 or size < self._required):
            self._required = size
            # The table is about to shrink, and no cached block begins with an update.
            self._cache.clear()

    def decode(self, block: bytes) -> HeaderBlock:
        """The fields of one whole header block.

        Equal octets may give the same object. Raises HpackError; the decoder is useless then.
        """
        known = self._cache.get(block)
        if known is not None:
            return known
        return self._decode(block)

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _decode(self, block: bytes) -> HeaderBlock:
        table: _Table = self._table
        end: cython.Py_ssize_t = len(block)
        i: cython.Py_ssize_t = 0
        octet: cython.uint
        mask: cython.uint
        index: cython.longlong
        place: cython.Py_ssize_t
        size: cython.longlong = 0
        entry_size: cython.longlong
        count: cython.Py_ssize_t = 0
        changed: cython.bint = False
        too_large: cython.bint = False
        name: bytes
        value: bytes
        fields: list[Field] = []

        if self._required >= 0 or (end > 0 and (block[0] & 0xE0) == 0x20):
            i = self._update_sizes(block, end)
            changed = True

        while i < end:
            octet = block[i]
            i += 1
            if octet & 0x80:  # 6.1 indexed
                mask = 0x7F
            elif octet & 0x40:  # 6.2.1 with incremental indexing
                mask = 0x3F
            elif octet & 0x20:
                raise HpackError("a size update after the first field of a block")
            else:  # 6.2.2 without indexing, 6.2.3 never indexed
                mask = 0x0F
            index = octet & mask
            if index == mask:
                index = self._integer(block, i, end, mask)
                i = self._position
            if index > 61:
                place = len(table.entries) - (index - 61)
                if place < table.first:
                    raise HpackError(f"index {index} is beyond the table")
                field = table.entries[place]
            else:
                field = _STATIC[index]
            name, value = field
            if octet & 0x80:
                if index == 0:
                    raise HpackError("index 0")
                entry_size = len(name) + len(value) + 32
            else:
                if index == 0:
                    name = self._string(block, i, end)
                    i = self._position
                value = self._string(block, i, end)
                i = self._position
                entry_size = len(name) + len(value) + 32
                field = (name, value)
                if octet & 0x40:
                    table.insert(field, entry_size)
                    changed = True
                elif octet & 0x10:
                    field = SensitiveField(field)
            size += entry_size
            count += 1
            if size > self._max_list_size or count > self._max_fields:
                too_large = True
            else:
                fields.append(field)

        result: HeaderBlock = HeaderBlock(tuple(fields), size, too_large)
        if changed:
            self._cache.clear()
        elif end <= _CACHED_OCTETS:
            if len(self._cache) >= _CACHED_BLOCKS:
                self._cache.clear()
            self._cache[block] = result
        return result

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _update_sizes(self, block: bytes, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Carry out the size updates that the block begins with; the position behind them."""
        i: cython.Py_ssize_t = 0
        size: cython.longlong
        while i < end and (block[i] & 0xE0) == 0x20:
            size = block[i] & 0x1F
            i += 1
            if size == 0x1F:
                size = self._integer(block, i, end, 0x1F)
                i = self._position
            if size > self._limit:
                raise HpackError(f"a size update to {size} exceeds the limit of {self._limit}")
            if size <= self._required:
                self._required = -1
            self._table.resize(size)
        if self._required >= 0:
            raise HpackError(f"no size update to {self._required} or less after the limit fell")
        return i

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _integer(
        self, block: bytes, i: cython.Py_ssize_t, end: cython.Py_ssize_t, prefix: cython.longlong
    ) -> cython.Py_ssize_t:
        """The integer whose prefix was all ones, from its second octet (RFC 7541 section 5.1).

        At most 2**31 - 1 in at most five more octets. Leaves ``_position`` behind it.
        """
        value: cython.longlong = prefix
        shift: cython.uint = 0
        octet: cython.longlong
        while True:
            if i >= end:
                raise HpackError("the block ends within an integer")
            if shift > 28:
                raise HpackError("an integer of too many octets")
            octet = block[i]
            i += 1
            value += (octet & 0x7F) << shift
            if octet < 0x80:
                break
            shift += 7
        if value > _MAX_INTEGER:
            raise HpackError("an integer exceeds 2**31 - 1")
        self._position = i
        return value

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _string(self, block: bytes, i: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
        """The string literal at ``i`` (RFC 7541 section 5.2). Leaves ``_position`` behind it."""
        if i >= end:
            raise HpackError("the block ends before a string")
        octet: cython.uint = block[i]
        i += 1
        length: cython.longlong = octet & 0x7F
        if length == 0x7F:
            length = self._integer(block, i, end, 0x7F)
            i = self._position
        if length > end - i:
            raise HpackError("the block ends within a string")
        self._position = i + length
        if not octet & 0x80:
            return block[i : i + length]
        try:
            result: bytes = huffman_decode(block, i, i + length)
        except HuffmanError as error:
            raise HpackError(str(error)) from None
        return result


@cython.cfunc
def _write_integer(
    output: bytearray, pattern: cython.uint, prefix: cython.longlong, value: cython.longlong
) -> None:
    """Append an integer with its ``pattern`` bits; ``prefix`` is all ones (section 5.1)."""
    if value < prefix:
        output.append(pattern | value)
        return
    output.append(pattern | prefix)
    value -= prefix
    while value >= 0x80:
        output.append((value & 0x7F) | 0x80)
        value >>= 7
    output.append(value)


@cython.cfunc
@cython.inline
def _frozen(output: bytearray) -> bytes:
    # Compiled, the slice of a C pointer: a call of bytes() takes 60 ns more.
    start: cython.p_char = output
    return start[: len(output)] if cython.compiled else bytes(output)


@cython.cfunc
def _write_string(output: bytearray, text: bytes) -> None:
    """Append a string literal, Huffman-encoded if that is shorter."""
    length: cython.longlong = encoded_length(text)
    if length < len(text):
        _write_integer(output, 0x80, 0x7F, length)
        output += huffman_encode(text)
    else:
        _write_integer(output, 0, 0x7F, len(text))
        output += text


class Encoder:
    """Encodes the header blocks of one direction of a connection, in their order.

    ``max_table_size`` is the most octets of table we use, whatever the peer allows. The peer's
    limit is 4096 until :meth:`set_peer_table_size`.
    """

    def __init__(self, max_table_size: cython.longlong = 4096) -> None:
        self._table = _Table(4096)
        self._cache: dict[int, tuple[Fields, bytes]] = {}
        self._cap = max_table_size
        # Size updates that the next block must begin with; -1: none.
        self._smallest = max_table_size if max_table_size < 4096 else -1
        self._final = self._smallest
        self._recent: set[int] = set()
        self._older: set[int] = set()

    @property
    def max_table_size(self) -> int:
        """Octets the dynamic table may have, as the peer was last told."""
        return self._table.max_size

    @property
    def table(self) -> Fields:
        """The dynamic table, the newest entry first."""
        return tuple(reversed(self._table.entries[self._table.first :]))

    def set_peer_table_size(self, size: cython.longlong) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE in octets; call it before acknowledging them."""
        size = min(size, self._cap)
        if self._final < 0:
            if size == self._table.max_size:
                return
            self._smallest = size
        elif size < self._smallest:
            self._smallest = size
        self._final = size
        # The next block begins with updates, which no cached block does.
        self._cache.clear()

    def encode(self, fields: Fields) -> bytes:
        """One whole header block. ``fields`` must be a tuple, and may be kept."""
        known = self._cache.get(id(fields))
        if known is not None:
            return known[1]
        return self._encode(fields)

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _encode(self, fields: Fields) -> bytes:
        table: _Table = self._table
        output: bytearray = bytearray()
        number: cython.longlong
        index: cython.longlong
        size: cython.longlong
        changed: cython.bint = False
        name: bytes
        value: bytes

        if self._final >= 0:
            self._write_updates(output)
            changed = True

        for field in fields:
            if type(field) is tuple:
                found = table.numbers.get(field)
                if found is not None:
                    number = found
                    _write_integer(output, 0x80, 0x7F, 61 + table.inserted - number)
                    continue
                found = _STATIC_FIELDS.get(field)
                if found is not None:
                    number = found
                    output.append(0x80 | number)
                    continue
            name, value = field
            index = 0
            found = _STATIC_NAMES.get(name)
            if found is not None:
                index = found
            else:
                found = table.names.get(name)
                if found is not None:
                    number = found
                    index = 61 + table.inserted - number
            if name in _NEVER_INDEXED or type(field) is not tuple:
                _write_integer(output, 0x10, 0x0F, index)
            else:
                size = len(name) + len(value) + 32
                # One that takes most of the table costs more than it can save.
                if size * 4 > table.max_size * 3:
                    _write_integer(output, 0, 0x0F, index)
                else:
                    changed = True
                    if self._sighted(hash(field)):
                        _write_integer(output, 0x40, 0x3F, index)
                        table.insert_numbered(field, size)
                    else:
                        _write_integer(output, 0, 0x0F, index)
            if index == 0:
                _write_string(output, name)
            _write_string(output, value)

        block: bytes = _frozen(output)
        if changed:
            self._cache.clear()
        elif len(block) <= _CACHED_OCTETS and type(fields) is tuple:
            if len(self._cache) >= _CACHED_BLOCKS:
                self._cache.clear()
            # The reference keeps the tuple alive, so its id stands for it.
            self._cache[id(fields)] = (fields, block)
        return block

    def _write_updates(self, output: bytearray) -> None:
        """The size updates that are due: the smallest since the last block, and the final one."""
        if self._smallest < self._final and self._smallest < self._table.max_size:
            _write_integer(output, 0x20, 0x1F, self._smallest)
            self._table.resize(self._smallest)
        _write_integer(output, 0x20, 0x1F, self._final)
        self._table.resize(self._final)
        self._smallest = -1
        self._final = -1

    def _sighted(self, mark: cython.Py_hash_t) -> cython.bint:
        """Whether a field with this hash was seen lately; remembers it."""
        if mark in self._recent:
            return True
        again: cython.bint = mark in self._older
        if len(self._recent) >= _SIGHTINGS:
            self._older = self._recent
            self._recent = set()
        self._recent.add(mark)
        return again


# What the gateway itself adds to each request: the octets up to the length of the value.
_LITERAL_NAMES: dict[bytes, bytes] = cython.declare(
    dict,
    {name: b"\x00%c%s" % (len(name), name) for name in (b"x-request-id", b"grpc-timeout")},
)
_SHORT_LENGTHS: tuple[bytes, ...] = cython.declare(tuple, tuple(b"%c" % n for n in range(127)))


def encode_literal(name: bytes, value: bytes) -> bytes:
    """One field that needs and changes no table, to append to a block of :meth:`Encoder.encode`.

    A literal without indexing (never indexed for credentials), not Huffman-encoded.
    """
    n: cython.Py_ssize_t = len(value)
    if n < 127:
        prefix: bytes | None = _LITERAL_NAMES.get(name)
        if prefix is not None:
            return prefix + _SHORT_LENGTHS[n] + value
    output: bytearray = bytearray()
    index: cython.longlong = 0
    found = _STATIC_NAMES.get(name)
    if found is not None:
        index = found
    _write_integer(output, 0x10 if name in _NEVER_INDEXED else 0, 0x0F, index)
    if index == 0:
        _write_integer(output, 0, 0x7F, len(name))
        output += name
    _write_integer(output, 0, 0x7F, len(value))
    output += value
    return _frozen(output)
