# C layout of hpack.py.

cimport cython


@cython.final
@cython.freelist(32)
cdef class HeaderBlock:
    cdef readonly tuple fields
    cdef readonly long long size
    cdef readonly bint too_large
    cdef public object memo


@cython.final
cdef class _Table:
    cdef list entries
    cdef Py_ssize_t first
    cdef long long size
    cdef long long max_size
    cdef long long inserted
    cdef dict numbers
    cdef dict names

    cdef void evict(self, long long target)
    cdef void insert(self, object field, long long size)
    cdef void insert_numbered(self, object field, long long size)
    cdef void resize(self, long long max_size)


@cython.final
cdef class Decoder:
    cdef _Table _table
    cdef dict _cache
    cdef long long _limit
    cdef long long _required
    cdef long long _max_list_size
    cdef Py_ssize_t _max_fields
    cdef Py_ssize_t _position

    cpdef HeaderBlock decode(self, bytes block)
    cdef HeaderBlock _decode(self, bytes block)
    cdef Py_ssize_t _update_sizes(self, bytes block, Py_ssize_t end) except -1
    cdef Py_ssize_t _integer(
        self, bytes block, Py_ssize_t i, Py_ssize_t end, long long prefix
    ) except -1
    cdef bytes _string(self, bytes block, Py_ssize_t i, Py_ssize_t end)


@cython.final
cdef class Encoder:
    cdef _Table _table
    cdef dict _cache
    cdef long long _cap
    cdef long long _smallest
    cdef long long _final
    cdef set _recent
    cdef set _older

    cpdef bytes encode(self, tuple fields)
    cdef bytes _encode(self, tuple fields)
    cdef void _write_updates(self, bytearray output)
    cdef bint _sighted(self, Py_hash_t mark) except -1


cpdef bytes encode_literal(bytes name, bytes value)
