"""The journey of a request through the gateway (level 3).

``downstream`` is the server side of a client's connection, ``exchange`` one request's life from
its head to its last byte, ``rescue`` the only place where a failure becomes a response.
"""
