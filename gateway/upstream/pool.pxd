# Lets pool.py call connections through C.

from gateway.upstream.connection cimport UpstreamConnection
