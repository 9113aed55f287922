"""TLS without I/O (level 1): ciphertext in, plaintext out, and back.

``channel`` is what a transport knows of it. ``session`` implements it upon OpenSSL, the calls of
which stand in ``bindings``; ``server`` and ``client`` make sessions from settings; ``client_hello``
reads what a client asks for before OpenSSL does; ``certificate`` reads the files; ``ocsp`` asks,
verifies and dates stapled responses; ``replay`` remembers early data that was seen.

OpenSSL takes some settings for the whole process only, from a file, when it is loaded: whoever
serves calls :func:`gateway.tls.openssl_conf.apply` before anything here is imported.
"""
