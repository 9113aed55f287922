"""Conformance of a live server to RFC 9113 and RFC 7541, seen from a raw socket."""
