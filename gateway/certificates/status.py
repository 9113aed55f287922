"""What ``gateway ocsp status`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from gateway import config
from gateway.certificates.contexts import read_certificates
from gateway.certificates.staple import issuer_of, now
from gateway.certificates.state import State
from gateway.config import tls as models
from gateway.config.quantities import format_duration
from gateway.errors import GatewayError
from gateway.tls import ocsp
from gateway.tls.certificate import Certificate, read_file


def report(settings: config.Config) -> tuple[list[str], bool]:
    """The lines for all certificates of ``settings``, and whether each that should has a staple.

    Raises:
        CertificateError: a certificate can't be read.
    """
    lines: list[str] = []
    right = True
    for name, table in settings.tls.items():
        for entry, certificate in zip(table.certificates, read_certificates(table), strict=True):
            lines.append(f"tls.{name} {entry.certificate}")
            found = list(_certificate(entry, certificate, settings.gateway.state_directory))
            lines += [f"  {key + ':':<18}{value}" for key, value in found]
            right = right and ("staple", "none") not in found
    return lines, right


def _certificate(
    entry: models.Certificate, certificate: Certificate, state_directory: str
) -> Iterator[tuple[str, str]]:
    time = now().timestamp()
    yield "names", ", ".join(sorted(certificate.names)) or "none"
    yield "certificate", _until(certificate.expires_at, time)
    yield "ocsp", entry.ocsp + (", must-staple" if certificate.must_staple else "")
    if entry.ocsp == "off":
        return
    if entry.ocsp == "file":
        assert entry.ocsp_file is not None
        yield from _staple(entry, certificate, lambda: read_file(entry.ocsp_file or ""), None)
        return
    state = State(state_directory, certificate.fingerprint)
    known = state.known()
    if known is None:
        yield "staple", "none"
        yield "responder", "not asked yet (is the gateway running?)"
        return
    if known.revoked:
        yield "staple", "none"
        yield "status", "REVOKED"
    else:
        yield from _staple(entry, certificate, state.response, known.received_at)
    yield "responder", known.url
    yield "fetches", f"{known.fetches}, {known.failures} of them failed"
    if known.last_error:
        yield "last error", known.last_error
    yield "next fetch", _distance(known.next_at - time)


def _staple(
    entry: models.Certificate,
    certificate: Certificate,
    read: Callable[[], bytes],
    received_at: float | None,
) -> Iterator[tuple[str, str]]:
    time = now().timestamp()
    try:
        staple = ocsp.verify(
            read(),
            certificate.leaf,
            issuer_of(entry, certificate),
            now(),
            validity_s=entry.ocsp_validity_s,
            received_at=received_at,
        )
    except (ocsp.OcspError, GatewayError) as error:
        yield "staple", "none"
        yield "why", str(error)
        return
    if staple.expires_at <= time:
        yield "staple", "none"
        yield "why", "out of date"
        return
    yield "staple", "good"
    yield "age", format_duration(max(round(time - staple.this_update), 0))
    yield "expires", _until(staple.expires_at, time)


def _until(at: float, time: float) -> str:
    shown = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if at <= time:
        return f"EXPIRED at {shown}"
    return f"until {shown}, {round(at - time)} s from now"


def _distance(seconds: float) -> str:
    return f"in {round(seconds)} s" if seconds > 0 else "due"
