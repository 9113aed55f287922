# C layout of connection.py.

cimport cython

from gateway.head cimport ResponseHead
from gateway.wire.codec cimport Stream, StreamOwner
from gateway.wire.frames cimport uint31
from gateway.wire.hpack cimport HeaderBlock
from gateway.wire.http2.control cimport Control


@cython.final
cdef class Connection(Control):
    cdef bytes _rest
    cdef bint _preface_left
    cdef bint _first_frame
    cdef Stream _data_stream
    cdef Py_ssize_t _data_left
    cdef Py_ssize_t _pad_left
    cdef bint _in_data
    cdef bint _data_end
    cdef long long _section_id
    cdef bytearray _section
    cdef int _section_flags
    cdef int _section_frames
    cdef long long _max_frame

    cdef void _walk(self, bytes data)
    cdef void _data_frame(
        self, long long stream_id, Py_ssize_t length, int flags, Py_ssize_t padding
    )
    cdef Py_ssize_t _data_piece(self, bytes data, Py_ssize_t i, Py_ssize_t n) except -1
    cdef void _headers_frame(
        self, bytes data, Py_ssize_t i, Py_ssize_t end, long long stream_id, int flags
    )
    cdef void _continuation_frame(self, bytes payload, long long stream_id, int flags)
    cdef void _section_done(self, bytes data, long long stream_id, int flags)
    cdef void _request(self, long long stream_id, HeaderBlock block, int flags)
    cdef void _bad_request(self, Stream stream, str detail)
    cdef void _response(self, Stream stream, HeaderBlock block, int flags)
    cdef void _trailers(self, Stream stream, HeaderBlock block, int flags)
