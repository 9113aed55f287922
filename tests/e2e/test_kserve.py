"""MLServer as a KServe v2 server, REST and gRPC, with Triton's client, through the gateway.

Both need an environment of their own, because they pin what we use in other versions: ``make
kserve`` makes it. Without it the test is skipped, except in CI, where it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from .conftest import StartGateway, Stopping
from .processes import ServerProcess, free_port

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-kserve" / "bin"
SOURCES = Path(__file__).parent / "servers" / "kserve"


class Endpoint:
    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"


def test_rest_and_grpc(gateway: StartGateway, stopping: Stopping, tmp_path: Path) -> None:
    if not (BIN / "mlserver").exists():
        reason = "no MLServer: make kserve"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
    }
    model = {"name": "echo", "implementation": "echo_model.Echo"}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "model-settings.json").write_text(json.dumps(model))
    env = {"PYTHONPATH": str(SOURCES), "PYTHONSAFEPATH": ""}
    server = stopping(ServerProcess((str(BIN / "mlserver"), "start", str(tmp_path)), http, env=env))
    server.lines.wait_for(lambda line: "gRPC server running" in line)
    process = gateway(
        [Endpoint(grpc)],
        cluster={"idle_timeout": "500ms"},
        config={
            "routes": [{"match": {"path_prefix": "/v2/"}, "cluster": "rest"}],
            "clusters": {
                "rest": {"endpoints": [{"address": server.address}], "idle_timeout": "500ms"}
            },
        },
    )
    done = subprocess.run(
        (str(BIN / "python"), str(SOURCES / "client.py"), process.address, process.address),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    missing = answer.pop("missing")
    assert answer == {
        "grpc_ready": True,
        "grpc_right": True,
        "rest_ready": 200,
        "rest": [2.0, 4.0, 6.0],
    }
    assert "NOT_FOUND" in missing
