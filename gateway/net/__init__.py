"""Sockets and the one task that serves them.

What lives here talks to the kernel on behalf of the levels below: addresses are read and written
(:mod:`~gateway.net.addresses`), listening sockets are opened by the parent before it forks
(:mod:`~gateway.net.sockets`), and in a worker the reactor serves every transport of a turn and
flushes each that it touched once. The protocols above a transport never see a socket.
"""
