"""The command line.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration. Each command imports
what it needs by itself, so that ``check`` and ``version`` answer at once.
"""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click
import msgspec

from gateway.config import Config, load
from gateway.errors import ConfigError, GatewayError

DEFAULT_FILE = "gateway.toml"

_FAILED = 1
_WRONG_CONFIGURATION = 2


class _Commands(click.Group):
    """The commands; ``certs`` is a package of its own, loaded when it is asked for: it loads
    OpenSSL, which ``serve`` must be the first to do."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), "certs"])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name == "certs":
            from gateway.certs import certs

            return certs
        return super().get_command(context, name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """An API gateway for HTTP/1.1, HTTP/2 and gRPC."""


_config_option = click.option(
    "-c",
    "--config",
    "file",
    default=DEFAULT_FILE,
    show_default=True,
    metavar="FILE",
    help="The configuration.",
)


@main.command()
@_config_option
@click.option(
    "--tls-key-log",
    metavar="FILE",
    help="Append the keys of all TLS sessions to FILE, for debugging: who reads it reads the "
    "traffic.",
)
def serve(file: str, tls_key_log: str | None) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    config = _load(file)
    if tls_key_log is not None:
        click.echo(f"gateway: TLS keys are written to {tls_key_log}", err=True)
        process = msgspec.structs.replace(config.gateway, tls_key_log=tls_key_log)
        config = msgspec.structs.replace(config, gateway=process)
    from gateway import supervisor

    try:
        code = supervisor.run(config)
    except GatewayError as error:
        code = _WRONG_CONFIGURATION if isinstance(error, ConfigError) else _FAILED
        _fail(str(error), code)
    sys.exit(code)


@main.command()
@click.argument("file", default=DEFAULT_FILE, metavar="[FILE]")
def check(file: str) -> None:
    """Check a configuration without serving it (default: gateway.toml)."""
    config = _load(file)
    endpoints = sum(len(cluster.endpoints) for cluster in config.clusters.values())
    parts = (
        _counted(len(config.listeners), "listener"),
        _counted(len(config.routes), "route"),
        _counted(len(config.clusters), "cluster"),
        _counted(endpoints, "endpoint"),
    )
    click.echo(f"{file}: right ({', '.join(parts)})")


@main.command()
def version() -> None:
    """Print the version, and whether the hot modules run compiled."""
    from gateway import _build

    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"gateway {_build.version()} ({_build.describe()}, Python {python})")


@main.group()
def ocsp() -> None:
    """OCSP responses that the gateway staples."""


@ocsp.command()
@_config_option
def status(file: str) -> None:
    """Print each certificate's staple and what its responder said; exit code 1 if one lacks."""
    config = _load(file)
    from gateway.certificates.status import report

    try:
        lines, right = report(config)
    except GatewayError as error:
        _fail(str(error), _FAILED)
    click.echo("\n".join(lines) if lines else f"{file}: no [tls.NAME] table")
    sys.exit(0 if right else _FAILED)


@main.command()
@click.option(
    "--once", is_flag=True, help="End by itself: exit code 0 only if all calls were right."
)
def demo(once: bool) -> None:
    """Start gRPC backends, the gateway and a client, and show where requests go."""
    from gateway._build import DISTRIBUTION

    try:
        run = importlib.import_module("gateway.demo.run")
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module == "gateway":
            raise
        package = {"grpc": "grpcio", "google": "protobuf"}.get(module, module)
        _fail(f"the demo needs {package}: pip install '{DISTRIBUTION}[demo]'", _FAILED)
    sys.exit(run.main(once=once))


def _load(file: str) -> Config:
    try:
        return load(file)
    except ConfigError as error:
        _fail(str(error), _WRONG_CONFIGURATION)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
