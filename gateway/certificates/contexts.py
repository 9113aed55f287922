"""From ``[tls.NAME]`` to TLS contexts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from OpenSSL import SSL

from gateway import config
from gateway.config.tls import Tls
from gateway.errors import GatewayError
from gateway.tls import bindings
from gateway.tls.certificate import Certificate, read_chain, read_crls
from gateway.tls.replay import ReplayWindow
from gateway.tls.server import ServerContext, ServerSettings

REPLAY_CAPACITY: Final = 65_536
"""Early data of so many connections is remembered for each 15 s; above it clients wait for the
handshake. 4,369 connections a second for 1 MiB."""


class Contexts:
    """The contexts of all tables that listeners name, by name. Made before the fork.

    ``replays`` remembers early data for all workers; None where no table takes any.

    Raises:
        GatewayError: a file or a value can't be served; the message names it.
    """

    def __init__(self, settings: config.Config, started_at: float) -> None:
        names = dict.fromkeys(
            listener.tls for listener in settings.listeners if listener.tls is not None
        )
        self.tables: dict[str, Tls] = {name: settings.tls[name] for name in names}
        early = any(table.early_data != "off" for table in self.tables.values())
        missing = bindings.missing(early)
        if missing:
            raise GatewayError(
                f"the installed cryptography lacks {', '.join(missing)}, which TLS needs here: "
                "install another version of it" + (', or set early_data = "off"' if early else "")
            )
        self._key_log = _open_key_log(settings.gateway.tls_key_log)
        self.replays = ReplayWindow(REPLAY_CAPACITY) if early else None
        self.by_name = {
            name: self._make(name, table, started_at) for name, table in self.tables.items()
        }

    def _make(self, name: str, table: Tls, started_at: float) -> ServerContext:
        try:
            return ServerContext(
                self.settings_of(table),
                read_certificates(table),
                generations=table.ticket_generations if table.session_tickets else 1,
                period_s=table.ticket_rotation_s,
                started_at=started_at,
            )
        except SSL.Error as error:
            raise GatewayError(f"tls.{name}: OpenSSL refuses it: {describe(error)}") from None

    def settings_of(self, table: Tls) -> ServerSettings:
        """What a table says, its files read. Raises CertificateError."""
        return ServerSettings(
            tls12=table.min_version == "1.2",
            suites=table.cipher_suites,
            client_auth=table.client_auth,
            client_ca=() if table.client_ca is None else tuple(read_chain(table.client_ca)),
            client_crls=() if table.client_crl is None else tuple(read_crls(table.client_crl)),
            strict_sni=table.strict_sni,
            tickets=table.session_tickets,
            ticket_lifetime_s=max(int(table.ticket_lifetime_s), 1),
            early_octets=0 if table.early_data == "off" else table.max_early_data,
            key_log=self._key_log,
        )

    def rotate(self, now: float) -> float:
        """Let go of ticket keys that are over at ``now``; when to come again.

        The parent does it for itself, so that no process holds them, and workers that are forked
        later begin without.
        """
        return min(context.rotate(now) for context in self.by_name.values())

    def close(self) -> None:
        """Give back the shared memory."""
        if self.replays is not None:
            self.replays.close()


def read_certificates(table: Tls) -> list[Certificate]:
    """The certificates of a table, in its order. Raises CertificateError."""
    return [Certificate.read(entry.certificate, entry.private_key) for entry in table.certificates]


def describe(error: SSL.Error) -> str:
    """OpenSSL's reasons in one line."""
    errors = error.args[0] if error.args else ()
    reasons = [str(entry[-1]) for entry in errors if entry]
    return "; ".join(reasons) or "no reason given"


def _open_key_log(path: str | None) -> Callable[[bytes], None] | None:
    """Writes lines of the NSS key log format, which let a reader of the traffic decrypt it."""
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GatewayError(f"--tls-key-log {path}: {error.strerror}") from None

    def write(line: bytes) -> None:
        os.write(fd, line + b"\n")

    return write
