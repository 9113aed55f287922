# C layout of stream.py.

cimport cython

from gateway.head cimport ResponseHead


cdef class StreamOwner:
    cpdef void request_data(self, bytes data, bint end)
    cpdef void request_trailers(self, object fields)
    cpdef void request_closed(self, int why, long long code)
    cpdef void request_drained(self, Py_ssize_t octets)
    cpdef void response_informational(self, ResponseHead head)
    cpdef void response_head(self, ResponseHead head, bint end)
    cpdef void response_data(self, bytes data, bint end)
    cpdef void response_trailers(self, object fields)
    cpdef void response_closed(self, int why, long long code)
    cpdef void response_drained(self, Py_ssize_t octets)


@cython.final
@cython.freelist(256)
cdef class Stream:
    cdef readonly long long id
    cdef public StreamOwner owner
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

    cdef void begin(
        self, long long stream_id, StreamOwner owner, long long send_window, long long recv_window
    )
