# C layout of head.py.

cimport cython


@cython.final
cdef class RequestHead:
    cdef readonly bytes method
    cdef readonly bytes scheme
    cdef readonly bytes authority
    cdef readonly bytes path
    cdef readonly tuple fields
    cdef readonly object protocol
    cdef readonly long long content_length
    cdef readonly bint is_grpc
    cdef readonly object grpc_timeout_s
    cdef public object memo


@cython.final
cdef class ResponseHead:
    cdef readonly int status
    cdef readonly tuple fields
    cdef readonly long long content_length
    cdef public object memo
