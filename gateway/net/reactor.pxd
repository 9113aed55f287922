# C layout of reactor.py.

cimport cython


cdef class Target:
    cpdef void ready(self, int events, double now)
    cpdef void flush(self, double now)
    cpdef double check(self, double now) except? -1.0


@cython.final
cdef class Reactor:
    cdef readonly list flush_list
    cdef readonly dict targets
    cdef readonly object budget
    cdef readonly long long[::1] counters
    cdef readonly double now
    cdef public double next_at
    cdef readonly long long turns
    cdef object _epoll
    cdef object _poll
    cdef object _wakeup
    cdef list _checks
    cdef double _swept_at
    cdef int _bugs

    cpdef void note(self, double at)
    cpdef Py_ssize_t turn(self, double timeout) except -1
    cpdef void flush(self)
    cpdef void sweep(self, double now)
