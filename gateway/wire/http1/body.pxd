# C layout of body.py.

cimport cython


@cython.final
cdef class BodyReader:
    cdef readonly bytes piece
    cdef readonly bint ended
    cdef readonly tuple trailers
    cdef int _kind
    cdef int _state
    cdef long long _left
    cdef bytes _line
    cdef Py_ssize_t _max_extensions
    cdef Py_ssize_t _max_trailers
    cdef Py_ssize_t _max_fields
    cdef Py_ssize_t _extensions

    cpdef void begin(self, int kind, long long length)
    cpdef Py_ssize_t take(self, bytes data, Py_ssize_t i) except -1
    cpdef bint at_eof(self) except -1
    cdef Py_ssize_t _take_chunks(self, bytes data, Py_ssize_t i) except -1
    cdef Py_ssize_t _plain_size(self, bytes data, Py_ssize_t i) except? -1
    cdef Py_ssize_t _size_line(self, bytes data, Py_ssize_t i) except -1
    cdef Py_ssize_t _trailer_section(self, bytes data, Py_ssize_t i) except -1
    cdef void _read_size(self, bytes line)
