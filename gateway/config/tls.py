"""TLS: the tables ``[tls.NAME]`` and ``[clusters.NAME.tls]``."""

from __future__ import annotations

from typing import Annotated, Literal

from gateway.config.kinds import INTERNAL, choice, count, duration, flag, part, size, text, texts
from gateway.config.limits import KIB, Model

TlsVersion = Literal["1.2", "1.3"]
ClientAuth = Literal["none", "optional", "required"]
EarlyData = Literal["off", "safe"]
Ocsp = Literal["off", "file", "fetch"]

MAX_EARLY_DATA = 16 * KIB
"""Octets: what OpenSSL skips, too, when it refuses early data (``recv_max_early_data``)."""


class Certificate(Model, frozen=True, kw_only=True):
    """A certificate, its key, and how its revocation status is stapled."""

    certificate: Annotated[
        str,
        text(
            "PEM file with the certificate chain, leaf first. A relative path starts at the "
            "configuration file. A change of the file is taken over while serving.",
            form="path",
        ),
    ]
    private_key: Annotated[
        str, text("PEM file with the private key, without a passphrase.", form="path")
    ]
    ocsp: Annotated[
        Ocsp,
        choice(
            "OCSP stapling: `file` staples what `ocsp_file` holds, `fetch` asks the responder and "
            "asks again in time."
        ),
    ] = "off"
    ocsp_file: Annotated[
        str | None, text('DER file with the response, for `ocsp = "file"`.', form="path")
    ] = None
    ocsp_url: Annotated[
        str | None,
        text(
            "The responder. Absent: the one that the certificate names (authorityInfoAccess).",
            form="URL",
        ),
    ] = None
    ocsp_issuer: Annotated[
        str | None,
        text(
            "PEM file with the certificate that signed ours, if `certificate` does not have it.",
            form="path",
        ),
    ] = None
    ocsp_validity_s: Annotated[
        float,
        duration(
            "How long a response without nextUpdate is served after it was received.", least=1.0
        ),
    ] = 3600.0


class Tls(Model, frozen=True, kw_only=True):
    """How listeners speak TLS to clients.

    `session_tickets` and `groups` hold for the whole process: all tables that listeners name must
    agree on them.
    """

    name: Annotated[str, INTERNAL] = ""
    certificates: Annotated[
        tuple[Certificate, ...],
        part("Which one a client gets its server name (SNI) says; the first is for all others."),
    ]
    min_version: Annotated[
        TlsVersion,
        choice("The lowest version. TLS 1.2 is served with AEAD suites and ECDHE only."),
    ] = "1.3"
    cipher_suites: Annotated[
        tuple[str, ...],
        texts(
            "Suites of TLS 1.3 by falling preference. Empty: `TLS_AES_128_GCM_SHA256`, "
            "`TLS_AES_256_GCM_SHA384`, `TLS_CHACHA20_POLY1305_SHA256`; a client that prefers the "
            "last one gets it."
        ),
    ] = ()
    groups: Annotated[
        tuple[str, ...],
        texts(
            'Groups of the key exchange by falling preference (`["X25519", "P-256"]`). Empty: '
            "those of OpenSSL."
        ),
    ] = ()
    strict_sni: Annotated[
        bool, flag("Whether clients that name no server of ours are refused.")
    ] = False
    client_auth: Annotated[
        ClientAuth,
        choice(
            "Whether clients are asked for a certificate. What is verified goes upstream in "
            "`x-forwarded-client-cert`."
        ),
    ] = "none"
    client_ca: Annotated[
        str | None, text("PEM file with the authorities of client certificates.", form="path")
    ] = None
    client_crl: Annotated[
        str | None, text("PEM file with revocation lists of those authorities.", form="path")
    ] = None
    handshake_timeout_s: Annotated[float, duration("How long a handshake may take.", least=0.1)] = (
        10.0
    )
    max_handshakes: Annotated[
        int,
        count(
            "Handshakes under way in one worker; above it the one that began first is closed.",
            least=1,
        ),
    ] = 2000
    session_tickets: Annotated[
        int,
        count("Tickets that a client gets with a full handshake; 0: no resumption.", most=16),
    ] = 2
    ticket_lifetime_s: Annotated[
        float,
        duration(
            "How long a session may be resumed. At most `ticket_rotation`.",
            least=1.0,
            most=604_800.0,
        ),
    ] = 43_200.0
    ticket_rotation_s: Annotated[
        float,
        duration(
            "How often the keys of tickets change. Those of the period before are still accepted.",
            least=1.0,
        ),
    ] = 43_200.0
    ticket_generations: Annotated[
        int,
        count(
            "Ticket keys made at start, one for each period. After the last one each worker makes "
            "its own, until the gateway starts again.",
            least=1,
            most=4096,
        ),
    ] = 128
    early_data: Annotated[
        EarlyData,
        choice(
            "0-RTT: whether requests are taken before the handshake is complete. `safe`: those "
            "that the route's `early_data` lists are forwarded at once, the others wait."
        ),
    ] = "off"
    max_early_data: Annotated[
        int, size("Bytes of early data of one connection.", least=1, most=MAX_EARLY_DATA)
    ] = MAX_EARLY_DATA
    ocsp_wait_s: Annotated[
        float,
        duration("How long the start waits for the first response of a responder."),
    ] = 5.0


class ClusterTls(Model, frozen=True, kw_only=True):
    """How `https` and `grpcs` endpoints are spoken to."""

    verify: Annotated[
        bool, flag("Whether the endpoint's certificate must be good, and for its name.")
    ] = True
    ca: Annotated[
        str | None,
        text("PEM file with the authorities trusted. Absent: those of the system.", form="path"),
    ] = None
    server_name: Annotated[
        str | None,
        text(
            "The name to ask for (SNI) and to verify. Absent: the host of the endpoint's address."
        ),
    ] = None
    certificate: Annotated[
        str | None, text("PEM file with our certificate chain, leaf first.", form="path")
    ] = None
    private_key: Annotated[str | None, text("PEM file with its key.", form="path")] = None
    require_staple: Annotated[
        bool, flag("Whether the endpoint must staple a good OCSP response.")
    ] = False
    min_version: Annotated[TlsVersion, choice("The lowest version.")] = "1.2"
