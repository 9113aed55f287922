"""One HTTP/1.1 connection, either end of it, without I/O (RFC 9112).

:mod:`.heads` reads field sections (the parser is llhttp, by httptools) and :mod:`.writing` writes
them; :mod:`.body` finds the end of a body; :mod:`.connection`, :mod:`.server` and :mod:`.client`
are the codecs.
"""
