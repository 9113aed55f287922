# C layout of sending.py.

from gateway.wire.frames cimport append_frame
from gateway.wire.codec cimport Codec, Stream, StreamOwner
from gateway.wire.hpack cimport Encoder, encode_literal


cdef class Sender(Codec):
    cdef readonly long long send_window
    cdef object _handler
    cdef object _limits
    cdef object _budget
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

    cdef bytes _block(self, tuple fields, tuple extra)
    cdef void _finish(self, Stream stream)
    cdef void _remove(self, Stream stream, int why, long long code)
    cdef void _rst(self, long long stream_id, int code)
    cdef void _write_section(self, long long stream_id, bytes block, bint end_stream)
    cdef void _overflow(self, Stream stream)
    cdef Py_ssize_t _move(self, Stream stream, long long most) except -1
    cdef void _complete(self, Stream stream)
    cdef Py_ssize_t _pump_stream(self, Stream stream, long long most) except -1
    cpdef void pump(self)
    cdef void _drop_held(self, Stream stream)
    cdef void _became_busy(self, double now)
    cdef void _schedule(self)
