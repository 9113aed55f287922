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


@click.group(invoke_without_command=True)
@_directory
@click.option("--name", "names", multiple=True, help="Host name or IP address; may be repeated.")
@click.option("--rsa", "rsa_key", is_flag=True, help="An RSA key for the leaf, not ECDSA P-256.")
@click.option(
    "--ocsp-url",
    default=f"http://{RESPONDER_ADDRESS}/",
    show_default=True,
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
    # Nothing of this may get into a repository.
    (directory / ".gitignore").write_text("*\n")
    ca = _keep_or_make(directory, "ca", False, make.make_ca)
    chain = (ca.certificate,)
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
        chain,
    )
    _keep_or_make(
        directory,
        "client",
        force,
        lambda: make.make_leaf(ca, ["client.localhost"], client=True, days=days),
        chain,
    )
    _keep_or_make(directory, "ocsp", force, lambda: make.make_ocsp_signer(ca, days=days))
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


def _keep_or_make(
    directory: Path,
    name: str,
    force: bool,
    issue: Callable[[], Issued],
    chain: tuple[x509.Certificate, ...] = (),
) -> Issued:
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    if not force and certificate.exists() and key.exists():
        click.echo(f"{certificate}: kept")
        return Issued.read(certificate, key)
    issued = issue()
    issued.write(certificate, key, chain)
    click.echo(f"{certificate}, {key}: made, until {issued.certificate.not_valid_after_utc:%F}")
    return issued


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
    if not host or not port.isdigit():
        raise click.BadParameter(f'"{address}" is not host:port', param_hint="--address")
    behaviour = Behaviour(
        fault, timedelta(seconds=validity) if validity else None, delay_s=delay / 1000
    )
    try:
        ca = Issued.read(directory / "ca.pem", directory / "ca.key")
        signer = Issued.read(directory / "ocsp.pem", directory / "ocsp.key")
        leaves = [
            x509.load_pem_x509_certificates(path.read_bytes())[0]
            for path in sorted(directory.glob("*.pem"))
        ]
        server = Responder(ca, signer, leaves, host=host, port=int(port), behaviour=behaviour)
    except (OSError, ValueError) as error:
        _fail(error, directory)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    click.echo(f"OCSP responder on {server.url} for {len(leaves)} certificates")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo(f"{server.requests} requests answered")


def _fail(error: OSError | ValueError, directory: Path) -> None:
    if isinstance(error, OSError):
        hint = ""
        if isinstance(error, FileNotFoundError):
            hint = f" (gateway certs --directory {directory} makes them)"
        raise click.ClickException(f"{error.filename or directory}: {error.strerror}{hint}")
    raise click.ClickException(f"{directory}: {error}")
