# C layout of sending.py.

from gateway.wire.frames cimport append_frame
from gateway.wire.hpack cimport Encoder
from gateway.wire.http2.stream cimport Stream, StreamOwner


cdef class Sender:
    cdef readonly bint client
    cdef readonly bytearray out
    cdef readonly dict streams
    cdef readonly bint broken
    cdef public bint dirty
    cdef readonly long long send_window
    cdef readonly Py_ssize_t out_mark
    cdef public double deadline
    cdef object _handler
    cdef object _limits
    cdef object _budget
    cdef list _flush_list
    cdef object _token
    cdef Encoder _encoder
    cdef double _now
    cdef readonly long long next_id
    cdef long long _peer_max_frame
    cdef long long _peer_window
    cdef long long _stream_window
    cdef long long _data_frames
    cdef bint _fresh
    cdef dict _blocked
    cdef dict _reset_ids

    cpdef Stream open_stream(
        self, StreamOwner owner, tuple fields, bytes extra, bint end_stream, bint no_body
    )
    cdef void _finish(self, Stream stream)
    cdef void _remove(self, Stream stream, int why, long long code)
    cdef void _rst(self, long long stream_id, int code)
    cpdef void reset(self, Stream stream, int code)
    cdef void _touch(self)
    cdef void _write_section(self, long long stream_id, bytes block, bint end_stream)
    cpdef void send_head(self, Stream stream, tuple fields, bytes extra, bint end_stream)
    cpdef Py_ssize_t send_data(self, Stream stream, bytes data, bint end_stream) except -1
    cdef void _overflow(self, Stream stream)
    cpdef void send_trailers(self, Stream stream, tuple fields)
    cdef Py_ssize_t _move(self, Stream stream, long long most) except -1
    cdef void _complete(self, Stream stream)
    cdef Py_ssize_t _pump_stream(self, Stream stream, long long most) except -1
    cpdef void pump(self)
    cpdef void flushed(self, double now)
    cdef void _drop_held(self, Stream stream)
    cdef void _became_busy(self, double now)
    cdef void _schedule(self)
