"""``gateway certs``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final, get_args

import click
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from gateway.certs import make
from gateway.certs.make import Issued
from gateway.certs.responder import Behaviour, Fault, Responder

RESPONDER_ADDRESS: Final = "127.0.0.1:8889"

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="certs",
    show_default=True,
    help="Where the files are.",
)


def _right_names(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        try:
            make.general_name(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return names


def _right_url(context: click.Context, parameter: click.Parameter, url: str) -> str:
    if not url.isascii() or not url.startswith("http://"):
        raise click.BadParameter(f'"{url}" is not an http:// URL in ASCII')
    return url


@click.group(invoke_without_command=True)
@_directory
@click.option(
    "--name",
    "names",
    multiple=True,
    callback=_right_names,
    help="Host name or IP address; may be repeated.",
)
@click.option("--rsa", "rsa_key", is_flag=True, help="An RSA key for the leaf, not ECDSA P-256.")
@click.option(
    "--ocsp-url",
    default=f"http://{RESPONDER_ADDRESS}/",
    show_default=True,
    callback=_right_url,
    help="The responder that the leaf names.",
)
@click.option("--must-staple", is_flag=True, help="The leaf asks for a staple (RFC 7633).")
@click.option("--days", type=click.IntRange(1, 3650), default=make.DEFAULT_DAYS, show_default=True)
@click.option("--force", is_flag=True, help="Make the leaves anew, also where there are some.")
@click.pass_context
def certs(
    context: click.Context,
    directory: Path,
    names: tuple[str, ...],
    rsa_key: bool,
    ocsp_url: str,
    must_staple: bool,
    days: int,
    force: bool,
) -> None:
    """Make a development CA, a leaf, a client certificate and an OCSP signer."""
    if context.invoked_subcommand is not None:
        return
    try:
        _make_all(directory, names, rsa_key, ocsp_url, must_staple, days, force)
    except (OSError, ValueError) as error:
        _fail(error, directory)


def _make_all(
    directory: Path,
    names: tuple[str, ...],
    rsa_key: bool,
    ocsp_url: str,
    must_staple: bool,
    days: int,
    force: bool,
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    _keep_out_of_repositories(directory)
    ca = _keep_or_make(directory, "ca", False, make.make_ca)
    issuer = ca.certificate
    _keep_or_make(
        directory,
        "edge",
        force,
        lambda: make.make_leaf(
            ca,
            names or make.DEFAULT_NAMES,
            rsa_key=rsa_key,
            ocsp_url=ocsp_url,
            must_staple=must_staple,
            days=days,
        ),
        issuer,
        chain=True,
    )
    _keep_or_make(
        directory,
        "client",
        force,
        lambda: make.make_leaf(ca, ["client.localhost"], client=True, days=days),
        issuer,
        chain=True,
    )
    _keep_or_make(directory, "ocsp", force, lambda: make.make_ocsp_signer(ca, days=days), issuer)
    click.echo(
        f"""
For gateway.toml:

  [[listeners]]
  address = "127.0.0.1:8443"
  tls = "edge"

  [[tls.edge.certificates]]
  certificate = "{directory}/edge.pem"
  private_key = "{directory}/edge.key"
  ocsp = "fetch"

For the staples run: gateway certs responder --directory {directory}"""
    )


def _keep_out_of_repositories(directory: Path) -> None:
    file = directory / ".gitignore"
    if not file.exists():
        file.write_text("*\n")
    elif "*" not in file.read_text().splitlines():
        # A folder that holds other things, too: its file is not ours to replace.
        click.echo(f'{file}: kept; without a line "*" the keys may get committed', err=True)


def _keep_or_make(
    directory: Path,
    name: str,
    force: bool,
    issue: Callable[[], Issued],
    issuer: x509.Certificate | None = None,
    *,
    chain: bool = False,
) -> Issued:
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    there = [file for file in (certificate, key) if file.exists()]
    if there and not force:
        if len(there) == 1:
            (lacking,) = {certificate, key} - set(there)
            remedy = "remove it" if name == "ca" else "remove it, or make both anew with --force"
            raise ValueError(f"{there[0]}: {lacking} is not there; put it back, or {remedy}")
        kept = Issued.read(certificate, key)
        note = ""
        if issuer is not None and not _issued_by(kept.certificate, issuer):
            note = f", but not of {directory / 'ca.pem'} (--force makes it anew)"
        click.echo(f"{certificate}: kept, until {kept.certificate.not_valid_after_utc:%F}{note}")
        return kept
    issued = issue()
    issued.write(certificate, key, [issuer] if chain and issuer is not None else [])
    click.echo(f"{certificate}, {key}: made, until {issued.certificate.not_valid_after_utc:%F}")
    return issued


def _issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@certs.command()
@_directory
@click.option("--address", default=RESPONDER_ADDRESS, show_default=True, help="Where to listen.")
@click.option("--delay", type=click.IntRange(0), default=0, help="Milliseconds before an answer.")
@click.option(
    "--validity",
    type=click.IntRange(0),
    default=3600,
    show_default=True,
    help="Seconds to nextUpdate; 0 leaves it out.",
)
@click.option(
    "--fault",
    type=click.Choice(get_args(Fault)),
    default="none",
    show_default=True,
    help="Answer wrongly, to see what becomes of it.",
)
def responder(directory: Path, address: str, delay: int, validity: int, fault: Fault) -> None:
    """Answer for the certificates of the directory until SIGINT or SIGTERM."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f'"{address}" is not host:port', param_hint="--address")
    behaviour = Behaviour(
        fault, timedelta(seconds=validity) if validity else None, delay_s=delay / 1000
    )
    try:
        ca = Issued.read(directory / "ca.pem", directory / "ca.key")
        signer = Issued.read(directory / "ocsp.pem", directory / "ocsp.key")
        leaves = [
            make.read_certificate(path)
            for path in sorted(directory.glob("*.pem"))
            if b"-----BEGIN CERTIFICATE-----" in path.read_bytes()  # no revocation lists
        ]
    except (OSError, ValueError) as error:
        _fail(error, directory)
    try:
        server = Responder(ca, signer, leaves, host=host, port=int(port), behaviour=behaviour)
    except OSError as error:
        raise click.ClickException(f"--address {address}: {error.strerror}") from None

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGTERM, stop)
        click.echo(f"OCSP responder on {server.url} for {len(leaves)} certificates")
        sys.stdout.flush()
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo(f"{server.requests} requests answered")


def _fail(error: OSError | ValueError, directory: Path) -> None:
    if isinstance(error, OSError):
        hint = ""
        if isinstance(error, FileNotFoundError):
            hint = f" (gateway certs --directory {directory} makes them)"
        raise click.ClickException(f"{error.filename or directory}: {error.strerror}{hint}")
    raise click.ClickException(str(error))
