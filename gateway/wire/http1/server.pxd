# C layout of server.py.

cimport cython

from gateway.wire.codec cimport Stream
from gateway.wire.http1.connection cimport Http1Codec
from gateway.wire.http1.heads cimport Http1Request


@cython.final
cdef class Server(Http1Codec):
    cdef bytes _scheme
    cdef Http1Request _request
    cdef bint _head_sent
    cdef bint _continued
    cdef bint _tunnel
    cdef bint _head_begun

    cdef void _begin(self, Http1Request request)
    cdef void _refuse(self, str kind, str detail)
    cdef void _become_tunnel(self, Stream stream)
