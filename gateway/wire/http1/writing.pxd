# C layout of writing.py.

cpdef bint has_length(tuple fields) except -1
cpdef void append_request_head(bytearray out, tuple fields, tuple extra, int framing)
cpdef void append_response_head(bytearray out, tuple fields, tuple extra, int framing)
cpdef void append_chunk(bytearray out, bytes data)
cpdef void append_last_chunk(bytearray out, tuple trailers)
