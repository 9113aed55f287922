# C layout of transport.py.

cimport cython

from gateway.net.reactor cimport Reactor, Target
from gateway.wire.codec cimport Codec


@cython.final
cdef class Transport(Target):
    cdef readonly Reactor reactor
    cdef readonly Codec codec
    cdef readonly object peer
    cdef readonly bint open
    cdef long long[::1] _counters
    cdef Py_ssize_t _in_counter
    cdef Py_ssize_t _out_counter
    cdef object _sock
    cdef readonly object channel
    cdef readonly bint secured
    cdef bint _upstream
    cdef bint _said_goodbye
    cdef double _used_at
    cdef bytearray _out
    cdef bytearray _wire
    cdef int _fd
    cdef int _events
    cdef int _paused
    cdef Py_ssize_t _most
    cdef bint _closing
    cdef bint _lingering
    cdef double _linger_until
    cdef double _blocked_since
    cdef double _stall_timeout
    cdef long long _accounted

    cdef object _receive(self)
    cdef Py_ssize_t _transmit(self) except -1
    cdef void _read(self, double now)
    cdef void _input_ended(self, double now)
    cdef void _answer_goodbye(self)
    cpdef void unseal(self, bytes data, double now)
    cdef void _channel_failed(self, str detail, double now)
    cdef void _use(self, double now)
    cdef void _seal(self, double now)
    cdef bint _is_early(self) except -1
    cdef bint _shakes_hands(self) except -1
    cdef void _backlog(self, Py_ssize_t size, Py_ssize_t sent, double now)
    cpdef void switch(self, Codec codec, object peer)
    cdef void _listen(self, Py_ssize_t size)
    cpdef void close_gracefully(self)
    cdef void _linger(self, double now)
    cpdef void close(self, str detail)
    cpdef void abort(self, str detail)
