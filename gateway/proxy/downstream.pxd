# C layout of downstream.py.

cimport cython

from gateway.net.reactor cimport Reactor
from gateway.net.transport cimport Transport
from gateway.head cimport RequestHead
from gateway.proxy.exchange cimport Exchange
from gateway.proxy.plan cimport Plan
from gateway.wire.http2.connection cimport Connection
from gateway.wire.http2.stream cimport Stream


@cython.final
cdef class Downstream:
    cdef readonly Reactor reactor
    cdef readonly Connection codec
    cdef readonly bytes client
    cdef object _site
    cdef Transport _transport
    cdef object _released
    cdef double _idle_timeout
    cdef double _idle_since
    cdef long long[::1] _counters

    cpdef void on_request(self, Stream stream, RequestHead head)
    cpdef void on_idle(self)
    cpdef double check(self, double now) except? -1.0
    cpdef void drain(self)
