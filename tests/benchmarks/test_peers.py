"""The configurations that the peers are given."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from benchmarks.peers import PEERS, Plan
from gateway.config import load

PORT = 18_000
BACKENDS = (18_001, 18_002)


def plan(directory: Path, http1_in: bool = False, http1_out: bool = False) -> Plan:
    return Plan(PORT, BACKENDS, 2, directory, http1_in, http1_out)


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


@pytest.mark.parametrize(("http1_out", "protocol"), [(False, "h2"), (True, "http1")])
def test_the_gateway_speaks_to_its_backends_as_planned(
    http1_out: bool, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = PEERS["gateway"]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    config = load(peer.launch(plan(tmp_path, http1_out=http1_out)).argv[-1])
    assert config.clusters["main"].protocol == protocol


@pytest.mark.parametrize("name", ["haproxy", "nginx"])
@pytest.mark.parametrize("http1_in", [False, True])
@pytest.mark.parametrize("http1_out", [False, True])
def test_a_peer_takes_its_configuration(
    name: str, http1_in: bool, http1_out: bool, tmp_path: Path
) -> None:
    peer = PEERS[name]
    program = peer.find()
    if program is None:
        pytest.skip(f"{peer.package} is not installed")
    argv = list(peer.launch(plan(tmp_path, http1_in, http1_out)).argv)
    check = ["-c", "-f", argv[-1]] if name == "haproxy" else ["-t", *argv[1:]]
    done = subprocess.run(
        [program, *check], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "http1_in", "http1_out", "option"),
    [
        ("nginx", True, True, "proxy_buffering off;"),
        ("haproxy", True, True, "option http-no-delay"),
        ("haproxy", True, False, "option http-no-delay"),
    ],
)
def test_nothing_is_held_back(
    name: str,
    http1_in: bool,
    http1_out: bool,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = PEERS[name]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    peer.launch(plan(tmp_path, http1_in, http1_out))
    assert option in "".join(file.read_text() for file in tmp_path.iterdir())


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
