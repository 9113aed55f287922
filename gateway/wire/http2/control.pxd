# C layout of control.py.

from gateway.wire.codec cimport Stream
from gateway.wire.frames cimport uint31
from gateway.wire.hpack cimport Decoder
from gateway.wire.http2.sending cimport Sender


cdef class Control(Sender):
    cdef readonly long long peer_max_streams
    cdef readonly long long peer_max_list_size
    cdef readonly bint settled
    cdef readonly bint going_away
    cdef readonly long long held
    cdef readonly long long recv_window
    cdef public double keepalive_interval_s
    cdef public double keepalive_timeout_s
    cdef readonly double last_received
    cdef Decoder _decoder
    cdef Py_ssize_t _max_streams
    cdef Py_ssize_t _max_block
    cdef long long _max_held
    cdef bint _sampling
    cdef long long _connection_window
    cdef object _flow
    cdef object _floods
    cdef long long _last_peer_id
    cdef long long _goaway_sent
    cdef long long _returnable
    cdef long long _updates
    cdef long long _pinged
    cdef list _settings_sent
    cdef double _header_at
    cdef double _preface_at
    cdef double _ping_at
    cdef double _pong_at
    cdef double _drain_at
    cdef double _busy_since
    cdef int _silent_pings

    cdef void _start(self, double now)
    cdef void _send_settings(self, dict settings)
    cdef void _flood(self, int kind)
    cdef void _priority_frame(self, Py_ssize_t length, bytes payload, long long stream_id)
    cdef void _rst_stream_frame(self, bytes payload, long long stream_id)
    cdef void _settings_frame(self, bytes payload, long long stream_id, int flags)
    cdef void _setting(self, long long key, long long value)
    cdef void _ping_frame(self, bytes payload, long long stream_id, int flags)
    cdef void _goaway_frame(self, bytes payload, long long stream_id)
    cdef void _window_update_frame(
        self, bytes data, Py_ssize_t i, Py_ssize_t length, long long stream_id
    )
    cdef bint _is_idle(self, long long stream_id) except -1
    cdef bint _ignored(self, long long stream_id) except -1
    cdef void _violate(self, Stream stream, int code, str detail)
    cdef void _stream_fault(self, long long stream_id, int code, str detail)
    cdef void _induced_reset(self, long long stream_id, int code)
    cdef void _break(self, int code, str detail, str counter)
    cdef void _lose_streams(self, str detail)
    cpdef void abort(self, int code, str detail, str counter)
    cdef void _return_credit(self, long long octets)
    cdef void _grow(self, long long window)
    cdef void _last_goaway(self)
    cdef void _spoke(self)
    cdef void _keep_alive(self, double now)
    cdef void _check_stalls(self, double now)
