"""Certificates for development and tests: an authority, leaves, a signer of OCSP responses, and a
responder. Nothing here serves traffic; what an operator runs in earnest comes from elsewhere.
"""

from __future__ import annotations

from gateway.certs.command import certs

__all__ = ["certs"]
