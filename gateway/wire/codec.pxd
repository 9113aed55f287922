# C layout of codec.py.

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
    cdef public bint local_closed
    cdef public bint remote_closed
    cdef public bint open
    cdef public bint no_body
    cdef readonly long long send_window
    cdef readonly long long recv_window
    cdef readonly long long held
    cdef readonly object pending
    cdef public str detail
    cdef long long returnable
    cdef long long expected
    cdef bint head_done
    cdef bint pending_end
    cdef object pending_trailers
    cdef double blocked_since

    cdef void begin(
        self, long long stream_id, StreamOwner owner, long long send_window, long long recv_window
    )


cdef class Codec:
    cdef readonly bint client
    cdef readonly bytearray out
    cdef readonly dict streams
    cdef readonly bint broken
    cdef readonly int paused
    cdef readonly bint resumable
    cdef readonly bint exhausted
    cdef readonly bint leaving
    cdef public bint dirty
    cdef readonly Py_ssize_t out_mark
    cdef public double deadline
    cdef list _flush_list
    cdef object _token

    cpdef void begin_codec(self, bint client, Py_ssize_t out_mark, list flush_list, object token)
    cpdef void touch(self)
    cpdef void receive(self, bytes data, double now)
    cpdef void resume(self, double now)
    cpdef bint input_ended(self, double now) except -1
    cpdef void flushed(self, double now)
    cpdef void check(self, double now)
    cpdef void lost(self, str detail)
    cpdef void go_away(self, double now)
    cpdef bint is_finished(self) except -1
    cpdef Stream open_stream(
        self, StreamOwner owner, tuple fields, tuple extra, bint end_stream, bint no_body
    )
    cpdef void send_head(self, Stream stream, tuple fields, tuple extra, bint end_stream)
    cpdef Py_ssize_t send_data(self, Stream stream, bytes data, bint end_stream) except -1
    cpdef void send_trailers(self, Stream stream, tuple fields)
    cpdef void reset(self, Stream stream, int code)
    cpdef void consume(self, Stream stream, long long octets)
