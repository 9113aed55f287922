"""The configurations that the peers are given for TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks.peers import PEERS, Plan
from benchmarks.tls.material import Material, make_material
from gateway.config import load


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("material"))


def plan(directory: Path, material: Material, http1: bool = False) -> Plan:
    return Plan(18_000, (18_001, 18_002), 1, directory, http1, http1, material)


def test_the_gateway_accepts_its_configuration(
    tmp_path: Path, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = PEERS["gateway"]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    config = load(peer.launch(plan(tmp_path, material)).argv[-1])
    (tls,) = config.tls.values()
    (certificate,) = tls.certificates
    assert config.listeners[0].tls == "edge"
    assert (tls.min_version, tls.groups, tls.early_data) == ("1.3", ("X25519", "P-256"), "safe")
    assert (certificate.ocsp, certificate.ocsp_file) == ("file", str(material.staple))


@pytest.mark.parametrize("name", ["haproxy", "nginx"])
@pytest.mark.parametrize("http1", [False, True])
def test_a_peer_takes_its_configuration(
    name: str, http1: bool, tmp_path: Path, material: Material
) -> None:
    peer = PEERS[name]
    program = peer.find()
    if program is None:
        pytest.skip(f"{peer.package} is not installed")
    argv = list(peer.launch(plan(tmp_path, material, http1)).argv)
    check = ["-c", "-f", argv[-1]] if name == "haproxy" else ["-t", *argv[1:]]
    done = subprocess.run(
        [program, *check], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("nginx", ("TLSv1.3;", "ssl_ecdh_curve X25519;", "ssl_early_data on;", "ssl_stapling on;")),
        ("haproxy", ("ssl-min-ver TLSv1.3", "curves X25519", "allow-0rtt", "alpn h2")),
        ("nghttpx", ("--tls-min-proto-version=TLSv1.3", "--ecdh-curves=X25519")),
    ],
)
def test_all_speak_the_same(
    name: str,
    wanted: tuple[str, ...],
    tmp_path: Path,
    material: Material,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = PEERS[name]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    launch = peer.launch(plan(tmp_path, material))
    written = "".join(file.read_text() for file in tmp_path.iterdir()) + " ".join(launch.argv)
    for text in wanted:
        assert text in written


@pytest.mark.parametrize(("http1", "protocol"), [(False, "h2"), (True, "http/1.1")])
def test_envoy_has_the_certificate_and_the_staple(
    http1: bool,
    protocol: str,
    tmp_path: Path,
    material: Material,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = PEERS["envoy"]
    monkeypatch.setattr(type(peer), "find", lambda _self: "/program")
    peer.launch(plan(tmp_path, material, http1))
    config = msgspec.json.decode((tmp_path / "envoy.json").read_bytes())
    (chain,) = config["static_resources"]["listeners"][0]["filter_chains"]
    common = chain["transport_socket"]["typed_config"]["common_tls_context"]
    assert common["alpn_protocols"] == [protocol]
    assert common["tls_params"]["ecdh_curves"] == ["X25519"]
    (certificate,) = common["tls_certificates"]
    assert certificate["ocsp_staple"]["filename"] == str(material.staple)
