"""The backends: their addresses, the connections to them, and who may use which.

Level 2. A :class:`~gateway.upstream.cluster.Cluster` picks an endpoint by its policy; the
endpoint's :class:`~gateway.upstream.pool.Pool` gives a stream on an open HTTP/2 connection, or lets
the request wait while one is dialled.
"""
