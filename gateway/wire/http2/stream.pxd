# C layout of stream.py.

cimport cython


@cython.final
@cython.freelist(256)
cdef class Stream:
    cdef readonly long long id
    cdef public object owner
    cdef readonly bint local_closed
    cdef readonly bint remote_closed
    cdef readonly bint open
    cdef public bint no_body
    cdef readonly long long send_window
    cdef readonly long long recv_window
    cdef readonly long long held
    cdef readonly object pending
    cdef readonly str detail
    cdef long long returnable
    cdef long long expected
    cdef bint head_done
    cdef bint pending_end
    cdef object pending_trailers
    cdef double blocked_since
