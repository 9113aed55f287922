"""Streams as load, of gRPC or of server-sent events: a server that sends messages at a rate, and a
client that times them.

Both are plain sockets and hand-made frames or chunks, each a process of its own. They know just
enough of HTTP for that, and nothing of HPACK's tables: the server answers every request alike
without reading its fields, and neither side reads the other's. Messages carry the time at which
they were sent (CLOCK_MONOTONIC, which all processes share), so the client knows how long each was
under way.
"""
