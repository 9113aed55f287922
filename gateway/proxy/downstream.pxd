# C layout of downstream.py.

cimport cython

from gateway.net.reactor cimport Reactor
from gateway.net.transport cimport Transport
from gateway.head cimport RequestHead
from gateway.proxy.exchange cimport Exchange
from gateway.proxy.plan cimport Plan
from gateway.wire.codec cimport Codec, Stream


@cython.final
cdef class Downstream:
    cdef readonly Reactor reactor
    cdef readonly Codec codec
    cdef readonly bytes client
    cdef object _site
    cdef object _origin
    cdef bytes _via
    cdef Transport _transport
    cdef object _released
    cdef object _secured
    cdef double _handshake_until
    cdef list _early
    cdef double _idle_timeout
    cdef double _idle_since
    cdef long long[::1] _counters

    cpdef void on_request(self, Stream stream, RequestHead head)
    cdef void _translate(self, Plan plan, Stream stream, Exchange exchange)
    cdef void _start_early(self, Plan plan, Exchange exchange)
    cpdef void on_idle(self)
    cpdef double check(self, double now) except? -1.0
    cpdef void drain(self)
