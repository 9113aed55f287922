"""TLS before the fork, and before OpenSSL is loaded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway import config
from gateway.errors import GatewayError
from gateway.tls import openssl_conf

if TYPE_CHECKING:
    from gateway.certificates.contexts import Contexts


def prepare(settings: config.Config) -> Contexts | None:
    """The contexts of the listeners; None if none speaks TLS.

    Call it before anything imports OpenSSL (:mod:`gateway.tls.openssl_conf`), and before the fork.

    Raises:
        GatewayError: TLS can't be served as configured; the message names the key or the file.
    """
    name = next((item.tls for item in settings.listeners if item.tls is not None), None)
    if name is None:
        return None
    table = settings.tls[name]
    try:
        openssl_conf.apply(table.session_tickets, table.groups)
    except openssl_conf.TooLateError:
        # Only a program that uses the gateway as a library can have loaded it.
        if table.session_tickets != openssl_conf.DEFAULT_TICKETS or table.groups:
            raise GatewayError(
                f"tls.{name}: session_tickets and groups can't be set, because OpenSSL was loaded "
                "before"
            ) from None
    from gateway.certificates.contexts import Contexts

    return Contexts(settings, time.monotonic())
