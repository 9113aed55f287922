# C layout of client.py.

cimport cython

from gateway.head cimport ResponseHead
from gateway.wire.codec cimport Stream
from gateway.wire.http1.connection cimport Http1Codec
from gateway.wire.http1.heads cimport Http1Response


@cython.final
cdef class Client(Http1Codec):
    cdef bint _upgrading
    cdef bint _tunnel
    cdef bint _head_done
    cdef bint _sent_any
    cdef bint _heard_any
    cdef bint _surplus
    cdef int _informational

    cdef void _response(self, Stream stream, Http1Response response)
    cdef void _switched(self, Stream stream, Http1Response response)
    cdef void _violate(self, str detail)
