"""What must hold between the values of the TLS tables, and of the files they name.

The files are looked at, not read: whether a key belongs to its certificate is found at the start,
when OpenSSL is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gateway.config.lines import KeyPath
from gateway.config.models import Config
from gateway.config.problems import Problems, did_you_mean, listed
from gateway.config.quantities import format_duration
from gateway.config.tls import Certificate, ClusterTls, Tls

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_URL = re.compile(r"https?://[^\s/]+(/\S*)?")


def check_tls(config: Config, problems: Problems) -> None:
    """Note what is wrong with the tables ``[tls.NAME]`` and the listeners that name them."""
    for name, tls in config.tls.items():
        _check_table(("tls", name), tls, problems)
    used: list[str] = []
    for index, listener in enumerate(config.listeners):
        path: KeyPath = ("listeners", index, "tls")
        if listener.tls is None:
            continue
        if listener.tls not in config.tls:
            known = f"known: {listed(config.tls)}" if config.tls else "there is no [tls.NAME] table"
            hint = did_you_mean(listener.tls, config.tls)
            problems.add(path, f"no [tls.{listener.tls}] table; {known}{hint}")
        elif listener.tls not in used:
            used.append(listener.tls)
    for name in used[1:]:
        _check_agreement(used[0], name, config, problems)


def _check_agreement(first: str, name: str, config: Config, problems: Problems) -> None:
    for key in ("session_tickets", "groups"):
        if getattr(config.tls[first], key) != getattr(config.tls[name], key):
            problems.add(
                ("tls", name, key),
                f"differs from that of [tls.{first}]; OpenSSL takes it for the whole process",
            )


def _check_table(path: KeyPath, tls: Tls, problems: Problems) -> None:
    if not tls.certificates:
        problems.add((*path, "certificates"), "empty; at least one certificate is needed")
    for index, certificate in enumerate(tls.certificates):
        _check_certificate((*path, "certificates", index), certificate, problems)
    for key, names in (("groups", tls.groups), ("cipher_suites", tls.cipher_suites)):
        for index, name in enumerate(names):
            if not _NAME.fullmatch(name):
                problems.add((*path, key, index), f'"{name}" is not a name that OpenSSL knows')
    if tls.client_auth != "none" and tls.client_ca is None:
        problems.add((*path, "client_ca"), f'missing; client_auth = "{tls.client_auth}" needs it')
    if tls.client_auth == "none":
        for key in ("client_ca", "client_crl"):
            if getattr(tls, key) is not None:
                problems.add((*path, key), 'needs client_auth = "optional" or "required"')
    if tls.client_ca is not None:
        _check_pem((*path, "client_ca"), tls.client_ca, ("CERTIFICATE",), problems)
    if tls.client_crl is not None:
        _check_pem((*path, "client_crl"), tls.client_crl, ("X509 CRL",), problems)
    if tls.ticket_lifetime_s > tls.ticket_rotation_s:
        problems.add(
            (*path, "ticket_lifetime"),
            f"{format_duration(tls.ticket_lifetime_s)} is more than ticket_rotation "
            f"({format_duration(tls.ticket_rotation_s)}): keys would be gone before their tickets",
        )
    if tls.early_data != "off" and not tls.session_tickets:
        problems.add((*path, "early_data"), "needs session_tickets: it is for resumed sessions")


def _check_certificate(path: KeyPath, certificate: Certificate, problems: Problems) -> None:
    _check_pem((*path, "certificate"), certificate.certificate, ("CERTIFICATE",), problems)
    keys = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")
    _check_pem((*path, "private_key"), certificate.private_key, keys, problems)
    if certificate.ocsp_issuer is not None:
        _check_pem((*path, "ocsp_issuer"), certificate.ocsp_issuer, ("CERTIFICATE",), problems)
    if certificate.ocsp == "file":
        if certificate.ocsp_file is None:
            problems.add((*path, "ocsp_file"), 'missing; ocsp = "file" needs it')
        else:
            _read((*path, "ocsp_file"), certificate.ocsp_file, problems)
    elif certificate.ocsp_file is not None:
        problems.add((*path, "ocsp_file"), 'needs ocsp = "file"')
    if certificate.ocsp_url is not None:
        if certificate.ocsp != "fetch":
            problems.add((*path, "ocsp_url"), 'needs ocsp = "fetch"')
        elif not _URL.fullmatch(certificate.ocsp_url):
            problems.add(
                (*path, "ocsp_url"), f'"{certificate.ocsp_url}" is not an http or https URL'
            )


def check_cluster_tls(path: KeyPath, tls: ClusterTls, problems: Problems) -> None:
    """Note what is wrong with a table ``[clusters.NAME.tls]``."""
    if tls.ca is not None:
        _check_pem((*path, "ca"), tls.ca, ("CERTIFICATE",), problems)
    for key, other in (("certificate", "private_key"), ("private_key", "certificate")):
        if getattr(tls, key) is not None and getattr(tls, other) is None:
            problems.add((*path, other), f"missing; {key} needs it")
    if tls.certificate is not None:
        _check_pem((*path, "certificate"), tls.certificate, ("CERTIFICATE",), problems)
    if tls.private_key is not None:
        keys = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")
        _check_pem((*path, "private_key"), tls.private_key, keys, problems)
    if not tls.verify and tls.ca is not None:
        problems.add((*path, "ca"), "has no use with verify = false")
    if not tls.verify and tls.require_staple:
        problems.add((*path, "require_staple"), "needs verify = true")


def _read(path: KeyPath, file: str, problems: Problems) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        problems.add(path, f"{file}: {error.strerror}")
        return None


def _check_pem(path: KeyPath, file: str, labels: Sequence[str], problems: Problems) -> None:
    data = _read(path, file, problems)
    if data is None:
        return
    if b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in data and "PRIVATE KEY" in labels:
        problems.add(path, f"{file}: the key is encrypted; store it without a passphrase")
    elif not any(f"-----BEGIN {label}-----".encode() in data for label in labels):
        problems.add(path, f"{file}: no PEM {labels[0].lower()} in it")
