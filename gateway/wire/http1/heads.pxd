# C layout of heads.py.

cimport cython

from gateway.head cimport RequestHead, ResponseHead


@cython.final
cdef class Http1Request:
    cdef readonly RequestHead head
    cdef readonly int minor
    cdef readonly bint keep_alive
    cdef readonly bint chunked
    cdef readonly bint te_trailers
    cdef readonly bint expects_continue


@cython.final
cdef class Http1Response:
    cdef readonly ResponseHead head
    cdef readonly int minor
    cdef readonly bint keep_alive
    cdef readonly bint chunked
    cdef readonly bytes upgrade
