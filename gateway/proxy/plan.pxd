# C layout of plan.py.

cimport cython

from gateway.head cimport RequestHead


@cython.final
cdef class Plan:
    cdef readonly object site
    cdef readonly RequestHead head
    cdef readonly bytes client
    cdef readonly object peers
    cdef readonly object route
    cdef readonly object cluster
    cdef readonly tuple fields
    cdef readonly bint has_request_id
    cdef readonly object problem
    cdef readonly str detail
    cdef public tuple answer
    cdef public tuple response_extra
    cdef public tuple translations
    cdef readonly double timeout
    cdef readonly double idle_timeout
    cdef readonly long long max_body
    cdef tuple _http1_fields

    cpdef tuple http1_fields(self)
