"""TLS without I/O (level 1): ciphertext in, plaintext out, and back.

For now only the seam, :class:`gateway.tls.channel.Channel`.
"""
