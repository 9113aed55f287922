# C layout of plan.py.

cimport cython


@cython.final
cdef class Plan:
    cdef readonly object site
    cdef readonly object route
    cdef readonly object cluster
    cdef readonly tuple fields
    cdef readonly bint has_request_id
    cdef readonly object problem
    cdef readonly str detail
    cdef readonly double timeout
    cdef readonly double idle_timeout
    cdef readonly long long max_body
