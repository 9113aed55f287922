"""What makes the TLS sessions of a cluster. Apart, because it loads OpenSSL."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway import config
from gateway.tls.certificate import Certificate, read_chain
from gateway.tls.client import ClientContext, ClientSettings

_OFFERS = {
    "auto": (b"h2", b"http/1.1"),
    "h2": (b"h2",),
    "http1": (b"http/1.1",),
}


def client_context(cluster: config.Cluster) -> ClientContext:
    """What makes the sessions of a cluster.

    Raises:
        CertificateError: a file of ``[clusters.NAME.tls]`` can't be used.
    """
    tls = cluster.tls
    certificate = None
    if tls.certificate is not None and tls.private_key is not None:
        certificate = Certificate.read(tls.certificate, tls.private_key)
    settings = ClientSettings(
        protocols=_OFFERS[cluster.protocol],
        verify=tls.verify,
        ca=() if tls.ca is None else tuple(read_chain(tls.ca)),
        certificate=certificate,
        require_staple=tls.require_staple,
        tls12=tls.min_version == "1.2",
    )
    return ClientContext(settings, lambda: datetime.now(UTC))
