"""What the benchmarks' client believes about a certificate's status, and how it asks."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.x509 import ocsp

from benchmarks.process import free_port
from benchmarks.tls import lookup, status
from gateway.certs.make import Issued, make_ca, make_leaf, make_ocsp_response, make_ocsp_signer

CA = make_ca()
LEAF = make_leaf(CA).certificate


def answer(signer: Issued = CA, **how: Any) -> bytes:
    return make_ocsp_response(LEAF, CA.certificate, signer, **how)


@pytest.mark.parametrize("signer", [CA, make_ocsp_signer(CA)])
def test_a_good_status_is_believed(signer: Issued) -> None:
    status.check(answer(signer), LEAF, CA.certificate)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"", "no OCSP response"),
        (b"nonsense", "to believe"),
        (answer(status=ocsp.OCSPCertStatus.REVOKED), "REVOKED"),
        (answer(this_update=datetime.now(UTC) - timedelta(days=2)), "not of today"),
        (answer(this_update=datetime.now(UTC) + timedelta(days=2)), "not of today"),
        (answer(make_ca()), "to believe"),
        (answer(make_ocsp_signer(make_ca())), "to believe"),
        (answer(make_ocsp_signer(CA, authorized=False)), "may not sign"),
        (answer()[:-1] + bytes([answer()[-1] ^ 1]), "to believe"),
    ],
)
def test_anything_else_is_not(response: bytes, reason: str) -> None:
    with pytest.raises(status.StatusError, match=reason):
        status.check(response, LEAF, CA.certificate)


def test_the_status_of_another_certificate_is_not_believed() -> None:
    other = make_leaf(CA).certificate
    with pytest.raises(status.StatusError, match="another certificate"):
        status.check(answer(), other, CA.certificate)


def test_the_responder_answers_when_it_is_told_to() -> None:
    question = status.question(LEAF, CA.certificate)
    assert ocsp.load_der_ocsp_request(question).serial_number == LEAF.serial_number
    port = free_port()
    with lookup.Responder(port, b"the answer") as responder:
        thread = threading.Thread(target=responder.serve_forever)
        thread.start()
        try:
            began_s = time.monotonic()
            sock = socket.create_connection(("127.0.0.1", port), 20)
            assert lookup.ask(sock, question, 0.05) == b"the answer"
            assert time.monotonic() - began_s >= 0.05
        finally:
            responder.shutdown()
            thread.join()
