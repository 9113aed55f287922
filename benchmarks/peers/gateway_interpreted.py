"""The gateway from the source tree, nothing compiled: what an install without a compiler costs."""

from __future__ import annotations

import sys

from benchmarks.peers.gateway import Gateway
from benchmarks.process import ROOT


class GatewayInterpreted(Gateway):
    """``python -m gateway`` with the source tree before everything else."""

    name = "gateway-interpreted"
    package = "the repository"

    def command(self) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-m", "gateway"], {
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
        }

    def find(self) -> str | None:
        return sys.executable if (ROOT / "gateway" / "__main__.py").exists() else None
