# C layout of connection.py.

cimport cython

from gateway.net.transport cimport Transport
from gateway.wire.codec cimport Codec, Stream


@cython.final
cdef class UpstreamConnection:
    cdef readonly object pool
    cdef readonly Codec codec
    cdef readonly bint http1
    cdef readonly Transport transport
    cdef readonly double idle_since
    cdef readonly bint retiring
    cdef readonly bint settled
    cdef readonly bint used
    cdef readonly bint answered
    cdef readonly long long limit
    cdef public double retire_at
    cdef public double kill_at
    cdef double _settle_until
    cdef double _grace
    cdef long long _most
    cdef long long[::1] _counters

    cpdef Py_ssize_t room(self) except? -1
    cpdef Stream open_stream(
        self, object owner, tuple fields, tuple extra, bint end_stream, bint no_body
    )
    cpdef void stream_closed(self)
    cpdef void retire(self)
    cdef void _say_goodbye(self)
    cpdef double check(self, double now) except? -1.0
