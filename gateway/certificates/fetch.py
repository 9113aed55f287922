"""Asking an OCSP responder over HTTP (RFC 6960 appendix A)."""

from __future__ import annotations

import os
from typing import Final

import trio
from cryptography import x509

from gateway.tls import ocsp

TIMEOUT_S: Final = 10.0
"""For one request with its connection: a responder needs milliseconds."""

_NONCE: Final = 32  # octets (RFC 9654 section 2.1)


class FetchError(Exception):
    """No answer could be had; the message names the cause."""


async def fetch(
    url: str, leaf: x509.Certificate, issuer: x509.Certificate, timeout_s: float = TIMEOUT_S
) -> tuple[bytes, bytes]:
    """Ask for the status of ``leaf``; the answer in DER, not verified, and the nonce it was asked
    with. At most :data:`gateway.tls.ocsp.MAX_RESPONSE` octets are read.

    Raises:
        FetchError: the responder does not answer, or answers something else.
    """
    # Loaded by who fetches, and nobody else.
    import httpx

    nonce = os.urandom(_NONCE)
    request = ocsp.build_request(leaf, issuer, nonce)
    body = b""
    try:
        with trio.fail_after(timeout_s):
            async with (
                httpx.AsyncClient(timeout=None, http2=False) as client,
                client.stream(
                    "POST",
                    url,
                    content=request,
                    headers={"content-type": ocsp.REQUEST_TYPE, "accept": ocsp.RESPONSE_TYPE},
                ) as response,
            ):
                if response.status_code != 200:
                    raise FetchError(f"HTTP status {response.status_code}")
                length = response.headers.get("content-length", "")
                if length.isdigit() and int(length) > ocsp.MAX_RESPONSE:
                    raise FetchError(f"an answer above {ocsp.MAX_RESPONSE} octets")
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > ocsp.MAX_RESPONSE:
                        raise FetchError(f"an answer above {ocsp.MAX_RESPONSE} octets")
    except trio.TooSlowError:
        raise FetchError(f"no answer within {timeout_s:g} s") from None
    except FetchError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a responder sends, the worker goes on
        raise FetchError(f"{type(error).__name__}: {error}".rstrip(": ")) from None
    return body, nonce
