"""Asking responders that are there, and such that are not."""

from __future__ import annotations

import socket

import pytest

from gateway.certificates.fetch import FetchError, fetch
from gateway.certificates.staple import now
from gateway.certs.make import Issued
from gateway.certs.responder import Responder
from gateway.tls import ocsp

from .conftest import CA


async def test_an_answer(responder: Responder, leaf: Issued):
    der, nonce = await fetch(responder.url, leaf.certificate, CA.certificate)
    ocsp.verify(der, leaf.certificate, CA.certificate, now(), nonce=nonce)
    assert nonce in der


@pytest.mark.parametrize(
    ("fault", "why"), [("http-500", "HTTP status 500"), ("huge", "an answer above 65536 octets")]
)
async def test_no_answer_to_speak_of(fault: str, why: str, responder: Responder, leaf: Issued):
    responder.behaviour.fault = fault  # type: ignore[assignment]
    with pytest.raises(FetchError, match=why):
        await fetch(responder.url, leaf.certificate, CA.certificate)


async def test_a_slow_one(responder: Responder, leaf: Issued):
    responder.behaviour.delay_s = 60.0
    with pytest.raises(FetchError, match="no answer within 0.1 s"):
        await fetch(responder.url, leaf.certificate, CA.certificate, 0.1)


async def test_nobody_there(leaf: Issued):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
        with pytest.raises(FetchError, match="ConnectError"):
            await fetch(url, leaf.certificate, CA.certificate)


async def test_no_url(leaf: Issued):
    with pytest.raises(FetchError):
        await fetch("http://[::bad/", leaf.certificate, CA.certificate)
