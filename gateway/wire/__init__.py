"""Bytes to meaning and back, without I/O.

HTTP/2 frames and connections (RFC 9113), HPACK (RFC 7541), the rules for fields and gRPC's
framing. Nothing here opens a socket, reads a clock, logs or awaits: bytes and the time are passed
in, bytes and effects come out. That is what lets every case be tested at every split point.
"""
