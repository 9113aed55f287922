"""Bytes to meaning and back, without I/O.

HTTP/1.1 (RFC 9112), HTTP/2 frames and connections (RFC 9113), HPACK (RFC 7541), the rules for
fields, the framing of gRPC and gRPC-Web, gzip and the PROXY protocol. Nothing here opens a socket,
reads a clock, logs or awaits: bytes and the time are passed in, bytes and effects come out. That is
what lets every case be tested at every split point.
"""
