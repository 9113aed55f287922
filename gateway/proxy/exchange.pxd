# C layout of exchange.py.

cimport cython

from gateway.head cimport RequestHead, ResponseHead
from gateway.net.reactor cimport Reactor
from gateway.proxy.plan cimport Plan
from gateway.upstream.connection cimport UpstreamConnection
from gateway.wire.codec cimport Codec, Stream, StreamOwner


@cython.final
cdef class Exchange(StreamOwner):
    cdef readonly RequestHead head
    cdef public double wait_until
    cdef public bint waiting
    cdef readonly double last_activity
    cdef readonly double deadline
    cdef readonly bint over
    cdef Reactor _reactor
    cdef long long[::1] _counters
    cdef Plan _plan
    cdef object _route
    cdef Codec _codec
    cdef Stream _stream
    cdef object _pool
    cdef object _endpoint
    cdef UpstreamConnection _connection
    cdef Codec _upstream_codec
    cdef Stream _upstream_stream
    cdef tuple _tried
    cdef int _attempts
    cdef object _last_failure
    cdef bint _refused
    cdef bint _grpc
    cdef bint _grpc_deadline
    cdef bint _request_ended
    cdef object _request_trailers
    cdef bint _response_started
    cdef bint _response_ended
    cdef bint _failing
    cdef bint _stop_upload
    cdef list _replay
    cdef Py_ssize_t _replay_size
    cdef long long _received
    cdef long long _sent
    cdef long long _credited
    cdef double _idle_timeout
    cdef tuple _extra
    cdef tuple _response_extra
    cdef bytes _key
    cdef bint _draining
    cdef long long _drained
    cdef bint _early
    cdef bint _told_early
    cdef bint _held

    cdef void begin(
        self,
        Reactor reactor,
        Codec codec,
        Stream stream,
        RequestHead head,
    )
    cpdef void start(self, Plan plan)
    cpdef void start_early(self, Plan plan)
    cpdef void hold(self, Plan plan)
    cpdef void secured(self)
    cdef void _too_early(self)
    cdef void _pick(self)
    cdef void _no_endpoint(self, str detail)
    cdef void _retry(self, object failure, bint elsewhere)
    cdef void _dispatch(self, UpstreamConnection connection)
    cdef void _moved(self, Py_ssize_t octets)
    cdef void _forget_if_large(self)
    cdef void _count_grpc(self, object fields)
    cdef void _upstream_failed(
        self, Stream stream, UpstreamConnection connection, int why, long long code
    )
    cdef void _too_large(self, long long limit)
    cdef void _expired(self)
    cpdef double check(self, double now) except? -1.0
    cpdef void fail(self, object failure)
    cdef bint _begin_draining(self) except -1
    cdef void _drain(self, Py_ssize_t octets)
    cpdef double check_orphan(self, double now) except? -1.0
    cdef bytes _via(self)
    cdef void _broken_upgrade(self)
    cdef void _answer(self, tuple fields)
    cdef void _stop_when_sent(self)
    cdef void _abandon(self)
    cdef void _release(self)
    cdef void _finish(self)
