"""The certificates that listeners serve, kept true while they serve (level 2).

``contexts`` makes the TLS contexts from the configuration, in the parent, before it forks: the
workers share the keys of their tickets. In each worker ``keeper`` watches the files, moves on the
ticket keys, and keeps the OCSP staples fresh; ``fetch`` asks a responder, ``state`` is where
responses and what is known of them lie on disk, for all workers and for the next start. ``status``
prints it.
"""
