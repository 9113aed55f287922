"""One certificate's staple, with a responder that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from gateway.certificates import staple as module
from gateway.certificates.staple import Stapler
from gateway.certs.make import Issued, make_ca, make_leaf, make_ocsp_response
from gateway.certs.responder import FAULTS, Fault, Responder
from gateway.telemetry import Counter
from gateway.tls.certificate import CertificateError

from .conftest import CA, Seen

Make = Callable[..., Stapler]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds to add to the time of the day."""
    ahead = [0.0]

    def later() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=ahead[0])

    monkeypatch.setattr(module, "now", later)
    return ahead


async def test_fetched_and_served(stapler: Make, responder: Responder, seen: Seen):
    one = stapler(ocsp="fetch", ocsp_url=responder.url)
    assert one.tick()
    await one.fetch()
    assert one.stapled
    assert one.certificate.staple
    assert not one.tick()
    assert seen.counts == {Counter.OCSP_FETCHES: 1}
    assert seen.lines == []


async def test_one_fetch_for_all_workers_and_the_next_start(stapler: Make, responder: Responder):
    workers = [stapler(ocsp="fetch", ocsp_url=responder.url) for _ in range(4)]
    async with trio.open_nursery() as nursery:
        for worker in workers:
            if worker.tick():
                nursery.start_soon(worker.fetch)
    for worker in workers:
        worker.tick()
        assert worker.stapled
    # A restart, the responder being away.
    responder.behaviour.fault = "http-500"
    again = stapler(ocsp="fetch", ocsp_url=responder.url)
    assert not again.tick()
    assert again.stapled
    assert responder.requests == 1


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "none"])
async def test_lies(fault: Fault, stapler: Make, responder: Responder, seen: Seen):
    responder.behaviour.fault = fault
    one = stapler(ocsp="fetch", ocsp_url=responder.url)
    await one.fetch()
    assert not one.stapled
    assert one.certificate.staple == b""
    assert one.revoked == (fault == "revoked")
    assert seen.counts[Counter.OCSP_FAILURES] == 1
    assert len(seen.lines) == 1
    # Not asked again at once.
    assert not one.tick()


async def test_the_last_good_one_until_it_expires(
    stapler: Make, responder: Responder, seen: Seen, clock: list[float]
):
    one = stapler(ocsp="fetch", ocsp_url=responder.url)
    await one.fetch()
    responder.behaviour.fault = "garbage"
    clock[0] = 0.61 * 3600
    assert one.tick()
    await one.fetch()
    assert one.stapled
    assert seen.counts[Counter.OCSP_FAILURES] == 1
    clock[0] = 3601
    one.tick()
    assert not one.stapled
    assert one.certificate.staple == b""
    assert any("out of date" in line for line in seen.lines)
    # And back.
    responder.behaviour.fault = "none"
    clock[0] = 0.0
    one._not_before = 0.0
    known = one._state.known()
    assert known is not None
    known.next_at = 0.0
    one._state.save(known, None)
    await one.fetch()
    assert one.stapled


async def test_revoked_later(stapler: Make, responder: Responder, seen: Seen, clock: list[float]):
    one, other = (stapler(ocsp="fetch", ocsp_url=responder.url) for _ in range(2))
    await one.fetch()
    other.tick()
    assert other.stapled
    responder.behaviour.fault = "revoked"
    clock[0] = 0.61 * 3600
    await one.fetch()
    other.tick()
    for stapled in (one, other):
        assert stapled.revoked
        assert stapled.certificate.staple == b""
    assert seen.counts[Counter.OCSP_REVOKED] == 1
    assert any("IS REVOKED" in line for line in seen.lines)


async def test_without_next_update(stapler: Make, responder: Responder, clock: list[float]):
    responder.behaviour.validity = None
    one = stapler(ocsp="fetch", ocsp_url=responder.url, ocsp_validity_s=100.0)
    await one.fetch()
    assert one.stapled
    clock[0] = 101.0
    one.tick()
    assert not one.stapled


async def test_another_responder_is_asked_at_once(stapler: Make, responder: Responder):
    await stapler(ocsp="fetch", ocsp_url=responder.url).fetch()
    assert stapler(ocsp="fetch", ocsp_url=responder.url + "other").tick()


async def test_a_full_disk_is_no_outage(
    stapler: Make, responder: Responder, seen: Seen, monkeypatch: pytest.MonkeyPatch
):
    one = stapler(ocsp="fetch", ocsp_url=responder.url)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one._state, "save", full)
    await one.fetch()
    assert one.stapled
    assert not one.tick()
    assert any("can't be kept on disk" in line for line in seen.lines)


def test_a_file(stapler: Make, leaf: Issued, seen: Seen, tmp_path: Path):
    file = tmp_path / "edge.ocsp"
    good = make_ocsp_response(leaf.certificate, CA.certificate, CA)
    file.write_bytes(good)
    one = stapler(ocsp="file", ocsp_file=str(file))
    assert not one.tick()
    assert one.certificate.staple == good
    # Of another certificate, or nothing at all: the one before stays.
    other = make_leaf(CA, ["other.test"])
    file.write_bytes(make_ocsp_response(other.certificate, CA.certificate, CA))
    one.tick()
    file.unlink()
    one.tick()
    assert one.certificate.staple == good
    assert len(seen.lines) == 2
    fresh = make_ocsp_response(leaf.certificate, CA.certificate, CA, validity=timedelta(days=1))
    file.write_bytes(fresh)
    one.tick()
    assert one.certificate.staple == fresh


def test_without_an_issuer_or_a_responder(stapler: Make, leaf: Issued, tmp_path: Path):
    with pytest.raises(CertificateError, match="names no OCSP responder; set ocsp_url"):
        stapler(ocsp="fetch")
    (tmp_path / "edge.pem").write_bytes(leaf.pem)
    with pytest.raises(CertificateError, match="append it to the file, or set ocsp_issuer"):
        stapler(ocsp="fetch", ocsp_url="http://x/")
    CA.write(tmp_path / "issuer.pem", tmp_path / "issuer.key")
    stapler(ocsp="fetch", ocsp_url="http://x/", ocsp_issuer=str(tmp_path / "issuer.pem"))
    make_ca().write(tmp_path / "issuer.pem", tmp_path / "issuer.key")
    with pytest.raises(CertificateError, match="has not signed"):
        stapler(ocsp="fetch", ocsp_url="http://x/", ocsp_issuer=str(tmp_path / "issuer.pem"))
