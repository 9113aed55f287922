"""Settings that OpenSSL reads for the whole process when it is loaded.

The bindings of ``cryptography`` have neither ``SSL_CTX_set_num_tickets`` nor
``SSL_CTX_set1_groups_list``. OpenSSL takes both from the section ``system_default`` of the file
that ``OPENSSL_CONF`` names (config(5), SSL_CONF_cmd(3): NumTickets, Groups), for every context the
process makes. So this module imports no OpenSSL, and :func:`apply` is called before anybody does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

VARIABLE: Final = "OPENSSL_CONF"

DEFAULT_TICKETS: Final = 2
"""What OpenSSL sends when it is told nothing."""


class TooLateError(Exception):
    """OpenSSL was loaded already: its settings can't be changed any more."""


def text(tickets: int, groups: Sequence[str]) -> str:
    """The file: ``tickets`` (0..16) after each full handshake, ``groups`` by falling preference."""
    lines = [
        "openssl_conf = gateway",
        "[gateway]",
        "ssl_conf = modules",
        "[modules]",
        "system_default = defaults",
        "[defaults]",
        f"NumTickets = {tickets}",
    ]
    if groups:
        lines.append(f"Groups = {':'.join(groups)}")
    return "\n".join(lines) + "\n"


def apply(tickets: int, groups: Sequence[str]) -> None:
    """Let OpenSSL begin with these settings in this process and those it forks.

    Raises:
        TooLateError: OpenSSL is loaded.
        OSError: no temporary file can be written.
    """
    if "cryptography.hazmat.bindings._rust" in sys.modules:
        raise TooLateError
    before = os.environ.get(VARIABLE)
    with tempfile.NamedTemporaryFile("w", prefix="gateway-", suffix=".cnf") as file:
        file.write(text(tickets, groups))
        file.flush()
        os.environ[VARIABLE] = file.name
        try:
            # Loading it is what reads the file.
            from cryptography.hazmat.bindings import _rust  # noqa: F401

            from gateway.tls import bindings

            bindings.load()
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before
