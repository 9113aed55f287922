"""The gateway as it is installed: compiled, unless the machine that installed it had no compiler.

``GATEWAY_PATH`` may name a directory that holds another build of the package ``gateway``, to
measure one that is not installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.peers.base import Launch, Peer, Plan, beside_python, first_line
from benchmarks.tls.material import GROUP, Material


def build_path() -> str:
    """What PYTHONPATH must be: empty for the installed build, which nothing may stand before."""
    return os.environ.get("GATEWAY_PATH", "")


class Gateway(Peer):
    """The console script beside the Python that runs the benchmarks."""

    name = "gateway"
    package = "make venv"
    early_data = True

    def command(self) -> tuple[list[str], dict[str, str]]:
        """How it is called, and with which environment. LookupError if it is not installed."""
        env = {"PYTHONPATH": build_path(), "PYTHONSAFEPATH": "1"}
        if build_path():
            return [sys.executable, "-m", "gateway"], env
        return [self.program()], env

    def find(self) -> str | None:
        if path := build_path():
            return sys.executable if (Path(path) / "gateway" / "__main__.py").exists() else None
        return beside_python("gateway")

    def launch(self, plan: Plan) -> Launch:
        file = plan.directory / "gateway.toml"
        file.write_text(_config(plan))
        argv, env = self.command()
        return Launch([*argv, "serve", "-c", str(file)], env)

    def version(self) -> str:
        if self.find() is None:
            return "not installed"
        argv, env = self.command()
        return first_line([*argv, "version"], env)

    def compiled(self) -> bool:
        """Whether every hot module is compiled, as its ``version`` says."""
        return "(compiled," in self.version()


def _tls(material: Material) -> str:
    return f"""\
tls = "edge"

[tls.edge]
groups = ["{GROUP}", "P-256"]
early_data = "safe"
min_version = "{"1.2" if material.tls12 else "1.3"}"

[[tls.edge.certificates]]
certificate = "{material.certificate}"
private_key = "{material.private_key}"
ocsp = "file"
ocsp_file = "{material.staple}"
"""


def _config(plan: Plan) -> str:
    endpoints = ", ".join(f'{{ address = "127.0.0.1:{port}" }}' for port in plan.backends)
    return f"""\
[gateway]
workers = {plan.workers}

[[listeners]]
address = "127.0.0.1:{plan.port}"
backlog = 4096
{"" if plan.tls is None else _tls(plan.tls)}

[[routes]]
cluster = "main"

[clusters.main]
protocol = "{"http1" if plan.http1_out else "h2"}"
endpoints = [{endpoints}]
"""
