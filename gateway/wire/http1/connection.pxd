# C layout of connection.py.

from gateway.wire.codec cimport Codec, Stream, StreamOwner
from gateway.wire.http1.body cimport BodyReader


cdef class Http1Codec(Codec):
    cdef object _handler
    cdef object _limits
    cdef object _budget
    cdef double _now
    cdef bytes _rest
    cdef Py_ssize_t _scanned
    cdef Py_ssize_t _max_head
    cdef Py_ssize_t _max_held
    cdef long long _held
    cdef BodyReader _reader
    cdef bint _in_body
    cdef bint _keep
    cdef bint _chunked_out
    cdef bint _skip_body
    cdef long long _owed
    cdef long long _served
    cdef Stream _stream
    cdef object _last_head
    cdef bytes _last_octets

    cdef void begin_http1(self, bint client, object http1, object http2, object handler,
                          object budget, list flush_list, object token, double now)
    cdef void _walk(self, bytes data)
    cdef Py_ssize_t _head_end(self, bytes data, Py_ssize_t i) except -2
    cdef Py_ssize_t _read_head(self, bytes data, Py_ssize_t i) except -1
    cdef Py_ssize_t _read_body(self, bytes data, Py_ssize_t i) except -1
    cdef void _followed(self)
    cdef void _take_rest(self)
    cdef void _bad_body(self, str detail)
    cdef void _received_end(self)
    cdef void _stop_input(self, int how)
    cdef void _go_on(self)
    cdef void _sent_end(self)
    cdef StreamOwner _forget(self, Stream stream)
    cdef void _remove(self, Stream stream, int why, long long code)
    cdef void _break(self, int code, str detail)
    cdef void _append_end(self, bytearray target, object trailers)
    cdef void _pump(self)
    cdef void _overflow(self, Stream stream)
