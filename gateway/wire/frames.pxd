# C signatures of frames.py.

cpdef bytes frame_header(Py_ssize_t length, int kind, int flags, long long stream_id)
cpdef void append_frame(
    bytearray out, int kind, int flags, long long stream_id, bytes payload
)
cpdef long long uint31(bytes data, Py_ssize_t i)
