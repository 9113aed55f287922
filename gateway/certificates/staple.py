"""The staple of one certificate: from a file, or fetched and fetched again in time.

Each worker has one for each certificate and looks at it once a second (:meth:`Stapler.tick`, which
does not wait). Whoever finds a fetch due takes the lock of the certificate's state and asks; the
others see the new files. What is served is only what was verified here, in this worker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

from cryptography import x509

from gateway.certificates.fetch import TIMEOUT_S, FetchError, fetch
from gateway.certificates.state import Known, State
from gateway.config import tls as models
from gateway.telemetry import Counter
from gateway.tls import ocsp
from gateway.tls.certificate import Certificate, CertificateError, is_issuer, read_chain, read_file

Count = Callable[[int], None]
Log = Callable[[str], None]


def now() -> datetime:
    """The time of the day."""
    return datetime.now(UTC)


class Stapler:
    """``wanted`` says whether there should be a staple; ``revoked`` that the responder says so of
    the certificate. ``staple`` is what is served now. ``log`` is told what a person must know,
    ``count`` counts."""

    def __init__(
        self,
        label: str,
        entry: models.Certificate,
        certificate: Certificate,
        state: State,
        count: Count,
        log: Log,
    ) -> None:
        self.label = label
        self.certificate = certificate
        self.wanted = entry.ocsp != "off"
        self.revoked = False
        self._entry = entry
        self._state = state
        self._count = count
        self._log = log
        self.staple: ocsp.Staple | None = None
        self._stamp: object = None
        self._said = ""
        self._busy = False
        self._not_before = 0.0
        self._rng = random.Random()
        self._issuer = None
        self.url = ""
        if not self.wanted:
            return
        self._issuer = issuer_of(entry, certificate)
        if entry.ocsp == "fetch":
            urls = [entry.ocsp_url] if entry.ocsp_url else ocsp.responder_urls(certificate.leaf)
            if not urls:
                raise CertificateError(
                    f"{entry.certificate}: the certificate names no OCSP responder; set ocsp_url"
                )
            self.url = urls[0]

    @property
    def stapled(self) -> bool:
        """Whether there is a staple now."""
        return self.staple is not None

    # -- once a second -----------------------------------------------------------------------

    def tick(self) -> bool:
        """Take over what is new on disk, drop what is out of date; whether a fetch is due."""
        if not self.wanted:
            return False
        time = now().timestamp()
        if self._entry.ocsp == "file":
            self._look_at_file()
        else:
            self._look_at_state()
        if self.staple is not None and time >= self.staple.expires_at:
            self._serve(None)
            self._say("its OCSP response is out of date, and there is no newer one")
        return self._entry.ocsp == "fetch" and not self._busy and self._is_due()

    def _look_at_file(self) -> None:
        assert self._entry.ocsp_file is not None
        try:
            data = read_file(self._entry.ocsp_file)
        except CertificateError as error:
            self._say(str(error))
            return
        if data != self._stamp:
            self._stamp = data
            self._take(data, None, self._entry.ocsp_file)

    def _look_at_state(self) -> None:
        stamp = self._state.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        known = self._state.known()
        if known is None:
            return
        self.revoked = known.revoked
        if known.revoked:
            self._serve(None)
            self._say("IS REVOKED, as its OCSP responder says: replace it")
            return
        response = self._state.response()
        if response:
            self._take(response, known.received_at, "the response kept on disk")

    def _take(self, data: bytes, received_at: float | None, source: str) -> None:
        """Serve a response if it is good."""
        assert self._issuer is not None
        try:
            staple = ocsp.verify(
                data,
                self.certificate.leaf,
                self._issuer,
                now(),
                validity_s=self._entry.ocsp_validity_s,
                received_at=received_at,
            )
        except ocsp.RevokedError as error:
            self.revoked = True
            self._count(Counter.OCSP_REVOKED)
            self._serve(None)
            self._say(f"IS REVOKED: {source}: {error}")
        except ocsp.OcspError as error:
            # What was served before goes on until it is out of date.
            self._say(f"{source} is not served: {error}")
        else:
            self._serve(staple)
            self._said = ""

    def _serve(self, staple: ocsp.Staple | None) -> None:
        self.staple = staple
        self.certificate.staple = b"" if staple is None else staple.der

    def _say(self, what: str) -> None:
        """Once, until something else happens."""
        if what != self._said:
            self._said = what
            self._log(f"{self.label}: {what}")

    # -- fetching ----------------------------------------------------------------------------

    async def fetch(self, timeout_s: float = TIMEOUT_S) -> None:
        """Ask the responder, unless another worker does or has just done so."""
        if self._busy:
            return
        self._busy = True
        try:
            with self._state.claimed() as mine:
                if mine and self._is_due():
                    await self._ask(timeout_s)
        except OSError as error:
            self._say(f"its OCSP response can't be asked for: {error}")
        finally:
            self._busy = False

    def unknown(self) -> bool:
        """Whether nobody has asked yet."""
        return self._state.known() is None

    def _is_due(self) -> bool:
        """Whether what is on disk says that it is time to ask."""
        time = now().timestamp()
        if time < self._not_before:
            return False
        known = self._state.known()
        return known is None or time >= known.next_at or known.url != self.url

    async def _ask(self, timeout_s: float) -> None:
        known = self._state.known() or Known(names=sorted(self.certificate.names))
        known.url = self.url
        known.fetches += 1
        self._count(Counter.OCSP_FETCHES)
        response = None
        assert self._issuer is not None
        try:
            response, nonce = await fetch(self.url, self.certificate.leaf, self._issuer, timeout_s)
            staple = ocsp.verify(
                response,
                self.certificate.leaf,
                self._issuer,
                now(),
                nonce=nonce,
                validity_s=self._entry.ocsp_validity_s,
            )
        except (FetchError, ocsp.OcspError) as error:
            response = None
            self._note_failure(known, error)
        else:
            time = now().timestamp()
            known.failures_in_row = 0
            known.last_error = ""
            known.revoked = False
            known.received_at = time
            known.this_update = staple.this_update
            known.expires_at = staple.expires_at
            known.next_at = ocsp.refresh_at(staple, time, self._rng)
        # Also where nothing can be written: the responder is not asked every second, and what it
        # said is served by this worker at least.
        self._not_before = known.next_at
        try:
            self._state.save(known, response)
        except OSError as error:
            self._say(f"its OCSP response can't be kept on disk: {error}")
            if response is not None:
                self._take(response, known.received_at, self.url)
        else:
            self._not_before = 0.0
            self._look_at_state()

    def _note_failure(self, known: Known, error: Exception) -> None:
        self._count(Counter.OCSP_FAILURES)
        known.failures += 1
        known.failures_in_row += 1
        known.last_error = str(error)
        known.next_at = now().timestamp() + ocsp.retry_delay_s(known.failures_in_row, self._rng)
        if isinstance(error, ocsp.RevokedError):
            known.revoked = True
            self._count(Counter.OCSP_REVOKED)
        else:
            self._say(f"OCSP responder {self.url}: {error}")


def issuer_of(entry: models.Certificate, certificate: Certificate) -> x509.Certificate:
    """The certificate that responses are verified with. Raises CertificateError."""
    if entry.ocsp_issuer is not None:
        for candidate in read_chain(entry.ocsp_issuer):
            if is_issuer(candidate, certificate.leaf):
                return candidate
        raise CertificateError(
            f"{entry.ocsp_issuer}: has not signed the certificate in {entry.certificate}"
        )
    issuer = certificate.issuer
    if issuer is None:
        raise CertificateError(
            f"{entry.certificate}: stapling needs the certificate of its issuer: append it to the "
            "file, or set ocsp_issuer"
        )
    return issuer
