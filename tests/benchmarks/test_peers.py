"""The configurations that the peers are given."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from benchmarks.peers import PEERS, Plan
from gateway.config import load

PORT = 18_000
BACKENDS = (18_001, 18_002)


def plan(directory: Path) -> Plan:
    return Plan(PORT, BACKENDS, 2, directory)


@pytest.mark.parametrize("name", PEERS)
def test_a_launch_names_all_ports(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = PEERS[name]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    launch = peer.launch(plan(tmp_path))
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    for port in (PORT, *BACKENDS):
        assert str(port) in written + " ".join(launch.argv)


def test_the_gateway_accepts_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = PEERS["gateway"]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    argv = peer.launch(plan(tmp_path)).argv
    config = load(argv[-1])
    assert config.gateway.workers == 2
    table = tomllib.loads(Path(argv[-1]).read_text())
    assert [e["address"] for e in table["clusters"]["main"]["endpoints"]] == [
        "127.0.0.1:18001",
        "127.0.0.1:18002",
    ]


def test_envoys_configuration_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = PEERS["envoy"]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    peer.launch(plan(tmp_path))
    decoded = msgspec.json.decode((tmp_path / "envoy.json").read_bytes())
    assert set(decoded) == {"static_resources"}


def test_what_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = PEERS["nginx"]
    monkeypatch.setattr(type(peer), "find", lambda _self: None)
    assert peer.version() == "not installed"
    with pytest.raises(LookupError, match="Debian: nginx"):
        peer.program()
