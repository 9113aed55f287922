"""The tables of TLS: what is read, and what is refused with the key's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.certs.make import make_ca, make_crl, make_leaf
from gateway.config import Config, TcpAddress, UnixAddress, parse
from gateway.config.address import parse_endpoint
from gateway.errors import ConfigError

CA = make_ca()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    leaf = make_leaf(CA, ["localhost"])
    leaf.write(tmp_path / "edge.pem", tmp_path / "edge.key", [CA.certificate])
    CA.write(tmp_path / "ca.pem", tmp_path / "ca.key")
    (tmp_path / "crl.pem").write_bytes(make_crl(CA, []))
    (tmp_path / "edge.ocsp").write_bytes(b"x")
    return tmp_path


def read(directory: Path, table: str = "", certificate: str = "", rest: str = "") -> Config:
    return parse(
        f"""
[[listeners]]
address = "127.0.0.1:8443"
tls = "edge"
[tls.edge]
{table}
[[tls.edge.certificates]]
certificate = "edge.pem"
private_key = "edge.key"
{certificate}
[[routes]]
cluster = "c"
[clusters.c]
endpoints = [{{ address = "127.0.0.1:9001" }}]
{rest}
""",
        directory=directory,
    )


def test_defaults(files: Path):
    config = read(files)
    edge = config.tls["edge"]
    assert (edge.min_version, edge.early_data, edge.client_auth) == ("1.3", "off", "none")
    assert edge.certificates[0].certificate == str(files / "edge.pem")
    assert edge.certificates[0].ocsp == "off"
    assert config.gateway.state_directory == str(files / "gateway-state")
    assert config.routes[0].early_data == ("GET", "HEAD")


@pytest.mark.parametrize(
    ("table", "certificate", "said"),
    [
        ('min_version = "1.1"', "", 'tls.edge.min_version: unknown value "1.1"'),
        ('groups = ["X 25519"]', "", "tls.edge.groups[0]"),
        ('cipher_suites = [""]', "", "tls.edge.cipher_suites[0]"),
        ('client_auth = "required"', "", "tls.edge.client_ca: missing"),
        ('client_ca = "ca.pem"', "", "tls.edge.client_ca: needs client_auth"),
        ('client_crl = "crl.pem"', "", "tls.edge.client_crl: needs client_auth"),
        ('client_auth = "optional"\nclient_ca = "crl.pem"', "", "no PEM certificate in it"),
        (
            'client_auth = "optional"\nclient_ca = "ca.pem"\nclient_crl = "ca.pem"',
            "",
            "no PEM x509 crl in it",
        ),
        ('ticket_rotation = "1h"', "", "tls.edge.ticket_lifetime: 12h is more than ticket_rotat"),
        ('early_data = "safe"\nsession_tickets = 0', "", "tls.edge.early_data: needs session_t"),
        ('max_early_data = "17KiB"', "", "tls.edge.max_early_data"),
        ('early_data = "on"', "", 'tls.edge.early_data: unknown value "on"'),
        ("", 'ocsp = "file"', "tls.edge.certificates[0].ocsp_file: missing"),
        ("", 'ocsp_file = "edge.ocsp"', 'ocsp_file: needs ocsp = "file"'),
        ("", 'ocsp = "file"\nocsp_file = "none"', "none: No such file"),
        ("", 'ocsp_url = "http://x/"', 'ocsp_url: needs ocsp = "fetch"'),
        ("", 'ocsp = "fetch"\nocsp_url = "ftp://x/"', "is not an http or https URL"),
        ("", 'ocsp_issuer = "edge.key"', "ocsp_issuer"),
    ],
)
def test_what_is_refused(table: str, certificate: str, said: str, files: Path):
    with pytest.raises(ConfigError) as caught:
        read(files, table, certificate)
    assert said in str(caught.value)


def test_files_that_are_not_there(files: Path):
    (files / "edge.key").unlink()
    with pytest.raises(ConfigError, match="private_key: .*edge.key: No such file"):
        read(files)
    (files / "edge.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="the key is encrypted"):
        read(files)


def test_what_openssl_takes_for_the_process_must_agree(files: Path):
    other = """
[[listeners]]
address = "127.0.0.1:8444"
tls = "other"
[tls.other]
session_tickets = 1
certificates = [{ certificate = "edge.pem", private_key = "edge.key" }]
"""
    with pytest.raises(ConfigError, match="tls.other.session_tickets: differs from that of"):
        read(files, rest=other)


def test_a_table_that_is_not_there(files: Path):
    with pytest.raises(ConfigError, match=r'no \[tls.edgy\] table.*did you mean "edge"'):
        read(files, rest='[[listeners]]\naddress = "127.0.0.1:1"\ntls = "edgy"')


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ('[clusters.c.tls]\ncertificate = "edge.pem"', "clusters.c.tls.private_key: missing"),
        ('[clusters.c.tls]\nprivate_key = "edge.key"', "clusters.c.tls.certificate: missing"),
        ('[clusters.c.tls]\nverify = false\nca = "ca.pem"', "has no use with verify = false"),
        ("[clusters.c.tls]\nverify = false\nrequire_staple = true", "needs verify = true"),
        ('[clusters.c.tls]\nca = "edge.key"', "clusters.c.tls.ca"),
        (
            '[clusters.d]\nendpoints = [{ address = "https://unix:/x" }]',
            "clusters.d.tls.server_name: missing",
        ),
        ('[clusters.d]\nendpoints = [{ address = "ftp://x:1" }]', '"ftp" in "ftp://x:1" is not a'),
    ],
)
def test_clusters(rest: str, said: str, files: Path):
    with pytest.raises(ConfigError) as caught:
        read(files, rest=rest)
    assert said in str(caught.value)


def test_what_early_data_may_list(files: Path):
    text = '[[routes]]\ncluster = "c"\nearly_data = ["PUT", "/a.B/C", "no method"]'
    with pytest.raises(ConfigError, match=r'early_data\[2\]: "no method" is neither'):
        read(files, rest=text)


@pytest.mark.parametrize(
    ("text", "address", "secure"),
    [
        ("a.test:80", TcpAddress("a.test", 80), False),
        ("http://a.test", TcpAddress("a.test", 80), False),
        ("https://a.test", TcpAddress("a.test", 443), True),
        ("https://a.test/", TcpAddress("a.test", 443), True),
        ("HTTPS://a.test:8443", TcpAddress("a.test", 8443), True),
        ("grpcs://[::1]:50051", TcpAddress("::1", 50051), True),
        ("https://[::1]", TcpAddress("::1", 443), True),
        ("grpc://a.test:1", TcpAddress("a.test", 1), False),
        ("https://unix:/run/x", UnixAddress("/run/x"), True),
    ],
)
def test_endpoints(text: str, address: object, secure: bool):
    assert parse_endpoint(text) == (address, secure)


@pytest.mark.parametrize("text", ["grpcs://a.test", "https://", "https://a b", "ws://a:1"])
def test_no_endpoints(text: str):
    with pytest.raises(ValueError):
        parse_endpoint(text)
