"""A worker's keeper: files that change, keys that rotate, what it says and counts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.certificates.contexts import Contexts
from gateway.certificates.keeper import Keeper
from gateway.certs.make import Issued, make_leaf, make_ocsp_response
from gateway.certs.responder import Responder
from gateway.config import parse
from gateway.errors import GatewayError
from gateway.telemetry import Counter, SharedMemory
from tests.tls.pair import client, join

from .conftest import CA

CONFIG = """
[[listeners]]
address = "127.0.0.1:0"
tls = "edge"
[tls.edge]
ticket_rotation = "10s"
ticket_lifetime = "10s"
ticket_generations = 2
{more}
[[tls.edge.certificates]]
certificate = "edge.pem"
private_key = "edge.key"
{ocsp}
[[routes]]
cluster = "c"
[clusters.c]
endpoints = [{{ address = "127.0.0.1:9" }}]
"""


class Kept:
    """A keeper, its clock and what it said."""

    def __init__(self, directory: Path, ocsp: str = "", more: str = "") -> None:
        self.settings = parse(CONFIG.format(ocsp=ocsp, more=more), directory=directory)
        self.contexts = Contexts(self.settings, 0.0)
        self.context = self.contexts.by_name["edge"]
        self.lines: list[str] = []
        self.clock = 0.0
        self.shared = SharedMemory(1, 1)
        self.row = self.shared.row(0)
        self.keeper = Keeper(
            self.settings, self.contexts, self.row, self.lines.append, lambda: self.clock
        )

    def count(self, counter: Counter) -> int:
        value: int = self.row.counters[counter]
        return value

    def look(self) -> None:
        """What :meth:`Keeper.run` does once a second, but for the fetches."""
        for name, table in self.keeper._tables.items():
            self.keeper._rotate(name, table)
            self.keeper._reload(name, table)
            for stapler in table.staplers:
                stapler.tick()
        self.keeper._measure()

    def close(self) -> None:
        self.contexts.close()
        self.row.counters.release()
        self.shared.close()


@pytest.fixture
def keep(tmp_path: Path, leaf: Issued) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(ocsp: str = "", more: str = "") -> Kept:
        made.append(Kept(tmp_path, ocsp, more))
        return made[-1]

    yield make
    for kept in made:
        kept.close()


def write(issued: Issued, directory: Path, key: bool = True) -> None:
    issued.write(
        directory / "edge.pem", directory / ("edge.key" if key else "x.key"), [CA.certificate]
    )


def test_a_new_pair_is_taken_over_when_it_has_settled(keep: Callable[..., Kept], tmp_path: Path):
    kept = keep()
    fresh = make_leaf(CA, ["localhost"])
    write(fresh, tmp_path)
    kept.look()
    assert kept.context.certificates[0].leaf != fresh.certificate
    kept.look()
    assert kept.context.certificates[0].leaf == fresh.certificate
    assert kept.count(Counter.CERTIFICATES_RELOADED) == 1
    kept.look()
    assert kept.count(Counter.CERTIFICATES_RELOADED) == 1


def test_a_broken_pair_is_refused_and_mended(
    keep: Callable[..., Kept], leaf: Issued, tmp_path: Path
):
    kept = keep()
    fresh = make_leaf(CA, ["localhost"])
    write(fresh, tmp_path, key=False)
    for _ in range(3):
        kept.look()
    assert kept.context.certificates[0].leaf == leaf.certificate
    assert kept.count(Counter.CERTIFICATE_RELOAD_FAILED) == 1
    assert [line for line in kept.lines if "edge.key: not the key of" in line]
    write(fresh, tmp_path)
    kept.look()
    kept.look()
    assert kept.context.certificates[0].leaf == fresh.certificate


def test_a_staple_of_a_file_follows_its_certificate(
    keep: Callable[..., Kept], leaf: Issued, tmp_path: Path
):
    file = tmp_path / "edge.ocsp"
    file.write_bytes(make_ocsp_response(leaf.certificate, CA.certificate, CA))
    kept = keep(ocsp='ocsp = "file"\nocsp_file = "edge.ocsp"')
    kept.look()
    assert kept.count(Counter.OCSP_STAPLES) == 1
    assert kept.count(Counter.OCSP_STAPLES_MISSING) == 0
    assert kept.count(Counter.OCSP_EXPIRES_AT) > kept.count(Counter.OCSP_UPDATED_AT) > 0
    write(make_leaf(CA, ["localhost"]), tmp_path)
    kept.look()
    kept.look()
    assert kept.count(Counter.OCSP_STAPLES) == 0
    assert kept.count(Counter.OCSP_STAPLES_MISSING) == 1


def test_what_did_not_change_keeps_its_staple(
    keep: Callable[..., Kept], leaf: Issued, tmp_path: Path
):
    file = tmp_path / "edge.ocsp"
    file.write_bytes(make_ocsp_response(leaf.certificate, CA.certificate, CA))
    kept = keep(ocsp='ocsp = "file"\nocsp_file = "edge.ocsp"')
    kept.look()
    os.utime(tmp_path / "edge.key", (1, 1))
    kept.look()
    (name, table), *_ = kept.keeper._tables.items()
    kept.keeper._reload(name, table)
    assert kept.count(Counter.CERTIFICATES_RELOADED) == 1
    assert kept.context.certificates[0].staple == file.read_bytes()


def test_the_parent_forgets_keys_too(keep: Callable[..., Kept]):
    contexts = keep(more="").contexts
    assert contexts.rotate(5.0) == 10.0
    assert contexts.rotate(25.0) == 30.0
    assert sorted(contexts.by_name["edge"]._contexts) == [1, 2]


def test_rotation_and_its_end(keep: Callable[..., Kept]):
    kept = keep()
    kept.look()
    assert kept.keeper._until_next() == 1.0
    kept.clock = 9.75
    kept.look()
    assert kept.keeper._until_next() == 0.25
    kept.clock = 10.0
    kept.look()
    assert kept.context.generation == 1
    assert kept.lines == []
    kept.clock = 20.0
    kept.look()
    kept.clock = 30.0
    kept.look()
    assert len([line for line in kept.lines if "used up" in line]) == 1


def test_expiry_is_said_once_a_day(keep: Callable[..., Kept], tmp_path: Path):
    write(make_leaf(CA, ["localhost"], days=3), tmp_path)
    kept = keep()
    for kept.clock in (0.0, 10.0, 86_399.0, 86_400.0):
        kept.keeper._measure()
    assert len([line for line in kept.lines if "expires in 3.0 days" in line]) == 2
    left = kept.count(Counter.CERTIFICATE_EXPIRES_AT)
    assert left == int(kept.context.certificates[0].expires_at)


async def test_the_start_waits_for_a_staple_but_not_for_ever(
    keep: Callable[..., Kept], responder: Responder
):
    ocsp = f'ocsp = "fetch"\nocsp_url = "{responder.url}"'
    kept = keep(ocsp)
    await kept.keeper.prepare()
    assert kept.count(Counter.OCSP_STAPLES) == 1
    # At once from the disk.
    responder.behaviour.delay_s = 60.0
    kept = keep(ocsp)
    await kept.keeper.prepare()
    assert kept.count(Counter.OCSP_STAPLES) == 1
    # And without anything there.
    kept = keep(ocsp.replace(responder.url, responder.url + "x"), 'ocsp_wait = "50ms"')
    await kept.keeper.prepare()


def test_early_data_is_asked_for_in_the_shared_window(keep: Callable[..., Kept]):
    kept = keep(more='early_data = "safe"')
    assert kept.context.accept_early(b"a")
    assert not kept.context.accept_early(b"a")
    assert kept.count(Counter.EARLY_DATA_REPLAYED) == 1


def test_keys_are_logged_to_a_file_of_ours_alone(tmp_path: Path, leaf: Issued):
    file = tmp_path / "keys"
    settings = parse(CONFIG.format(ocsp="", more=""), directory=tmp_path)
    process = msgspec.structs.replace(settings.gateway, tls_key_log=str(file))
    contexts = Contexts(msgspec.structs.replace(settings, gateway=process), 0.0)
    join(contexts.by_name["edge"], client(ca=(CA.certificate,)))
    assert b"CLIENT_TRAFFIC_SECRET_0 " in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    process = msgspec.structs.replace(settings.gateway, tls_key_log=str(tmp_path / "no" / "keys"))
    with pytest.raises(GatewayError, match="--tls-key-log .*/no/keys: No such file"):
        Contexts(msgspec.structs.replace(settings, gateway=process), 0.0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('cipher_suites = ["TLS_NONSENSE"]', "tls.edge: OpenSSL refuses it"),
    ],
)
def test_what_openssl_refuses(more: str, why: str, keep: Callable[..., Kept]):
    with pytest.raises(GatewayError, match=why):
        keep(more=more)
